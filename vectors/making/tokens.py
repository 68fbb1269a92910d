"""Tokens: genuine ones, and every forgery with the code it must give."""

import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

from remit.claims.canonical import decode_base64url, encode_base64url
from remit.claims.keys import ORDER
from vectors.making.world import (
    CLAIMS,
    FOREIGN,
    HEADER,
    NEXT,
    NOW,
    OF_KIND,
    OURS,
    PASSPORT,
    PASSPORT_CLAIMS,
    RECEIPT,
    RECEIPTS,
    STRANGER,
    THEIRS,
    THEM,
    US,
    Case,
    bookmark,
    mint,
    part,
    resign,
)


def token_cases() -> Iterator[Case]:
    """Yield every token case: genuine ones, and each forgery with the code it must give."""
    yield from _kind_cases()
    yield from _algorithm_cases()
    yield from _form_cases()
    yield from _signature_cases()
    yield from _header_cases()
    yield from _payload_cases()
    yield from _passport_cases()
    yield from _key_change_cases()
    yield from _bookmark_cases()


def _case(name: str, token: str, result: str = "ok", *, kind: str = "receipt", fault: str | None = None) -> Case:
    return {"name": name, "kind": kind, "token": token, "result": result} | ({"fault": fault} if fault else {})


def _kind_cases() -> Iterator[Case]:
    for kind in OF_KIND:
        for made, token in OF_KIND.items():
            result = "ok" if kind == made else "token_kind_mismatch"
            yield _case(f"a {made} offered as a {kind}", token, result, kind=kind)
    for typ in ("REMIT-Receipt+JWT", "application/remit-receipt+jwt", "Application/Remit-Receipt+Jwt"):
        yield _case(f"typ {typ}", mint(HEADER | {"typ": typ}, CLAIMS))
    strange: tuple[object, ...] = (None, "", "JWT", "remit-receipt", "remit-receipt+jwt ", ["remit-receipt+jwt"])
    for odd in (*strange, "text/remit-receipt+jwt"):
        yield _case(f"typ {odd!r}", mint(HEADER | {"typ": odd}, CLAIMS), "token_kind_mismatch")
    untyped = {name: item for name, item in HEADER.items() if name != "typ"}
    yield _case("no typ", mint(untyped, CLAIMS), "token_kind_mismatch")


def _algorithm_cases() -> Iterator[Case]:
    for alg in ("none", "nOnE", "NONE", "HS256", "ES384", "ES512", "es256", "RS256", "EdDSA", "", ["ES256"], None, 0):
        yield _case(f"alg {alg!r}", mint(HEADER | {"alg": alg}, CLAIMS), "algorithm_refused")
    nameless = {name: item for name, item in HEADER.items() if name != "alg"}
    yield _case("no alg", mint(nameless, CLAIMS), "algorithm_refused")
    message = f"{part(HEADER | {'alg': 'HS512'})}.{part(CLAIMS)}"
    tag = hmac.new(OURS.public.to_pem(), message.encode(), "sha512").digest()
    yield _case("HMAC with the public key", f"{message}.{encode_base64url(tag)}", "algorithm_refused")
    unsigned = f"{part({'alg': 'none', 'kid': OURS.kid, 'typ': 'remit-receipt+jwt'})}.{part(CLAIMS)}."
    yield _case("alg none with an empty signature", unsigned, "token_malformed")


def _form_cases() -> Iterator[Case]:
    header, payload, signature = RECEIPT.split(".")
    flattened = json.dumps({"protected": header, "payload": payload, "signature": signature})
    malformed = {
        "empty": "",
        "one part": header,
        "two parts": f"{header}.{payload}",
        "four parts": f"{RECEIPT}.",
        "five parts, as of an encrypted token": f"{header}.{payload}.{payload}.{payload}.{signature}",
        "empty header": f".{payload}.{signature}",
        "empty payload": f"{header}..{signature}",
        "empty signature": f"{header}.{payload}.",
        "JSON serialisation": flattened,
        "padded signature": f"{RECEIPT}==",
        "newline at the end": f"{RECEIPT}\n",
        "space at the end": f"{RECEIPT} ",
        "signature of 63 bytes": f"{header}.{payload}.{encode_base64url(decode_base64url(signature)[:63])}",
        "signature of 65 bytes": f"{header}.{payload}.{encode_base64url(decode_base64url(signature) + b'0')}",
        "signature in DER": f"{header}.{payload}.{encode_base64url(bytes.fromhex('3044') + bytes(68))}",
        "signature character beyond ASCII": f"{header}.{payload}.{signature[:-1]}\u00e9",
        "payload character beyond ASCII": f"{header}.{payload}\u00e9.{signature}",
    }
    for name, token in malformed.items():
        yield _case(name, token, "token_malformed")
    encodings = {
        "space before": f" {RECEIPT}",
        "padded header": f"{header}={'' if len(header) % 4 == 3 else '='}.{payload}.{signature}",
        "other alphabet in the header": f"{header[:-1]}+.{payload}.{signature}",
        "slash in the signature": f"{header}.{payload}.{signature[:-1]}/",
        "set bits after the last byte of the signature": f"{header}.{payload}.{_with_spare_bits(signature)}",
        "signature of one letter too short, padded": f"{header}.{payload}.{signature[:-1]}=",
    }
    for name, token in encodings.items():
        yield _case(name, token, "token_encoding_invalid")
    bits = mint(b'{"alg":"ES256"}x', CLAIMS).split(".")
    yield _case("header with text after it", ".".join(bits), "token_header_invalid", fault="json_syntax")
    odd_payload = _part_with_spare_bits(CLAIMS)
    for name, message in (
        ("set bits after the last byte of a signed header", f"{_part_with_spare_bits(HEADER)}.{payload}"),
        ("set bits after the last byte of a signed payload", f"{header}.{odd_payload}"),
        ("newline inside a signed payload", f"{header}.{payload[:9]}\n{payload[9:]}"),
        ("padding after a signed payload", f"{header}.{part(json.dumps(CLAIMS).encode())}="),
    ):
        signature = encode_base64url(OURS.sign(message.encode()))
        yield _case(name, f"{message}.{signature}", "token_encoding_invalid")
    long = "x" * 60_000
    yield _case("longer than a receipt may be", mint(HEADER, CLAIMS | {"reason": long}), "token_too_large")


def _with_spare_bits(part: str) -> str:
    """Return another spelling of the same bytes, for a part that ends within a character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert len(part) % 4, "all bits of the last character are used"
    return part[:-1] + alphabet[alphabet.index(part[-1]) | 1]


def _part_with_spare_bits(claims: object) -> str:
    """Return a part of a token in another spelling; a space more makes it end within a character."""
    data = json.dumps(claims).encode()
    return _with_spare_bits(part(data if len(data) % 3 else data + b" "))


def _signature_cases() -> Iterator[Case]:
    out_of_range: dict[str, Callable[[int, int], tuple[int, int]]] = {
        "r = 0": lambda _r, s: (0, s),
        "s = 0": lambda r, _s: (r, 0),
        "r = s = 0": lambda _r, _s: (0, 0),
        "r = n": lambda _r, s: (ORDER, s),
        "s = n": lambda r, _s: (r, ORDER),
        "r = n + 1": lambda _r, s: (ORDER + 1, s),
        "r = s = 2^256 - 1": lambda _r, _s: (2**256 - 1, 2**256 - 1),
    }
    for name, change in out_of_range.items():
        yield _case(name, resign(RECEIPT, change), "signature_out_of_range")
    wrong: dict[str, Callable[[int, int], tuple[int, int]]] = {
        "r = s = 1": lambda _r, _s: (1, 1),
        "r = n - 1, s = 1": lambda _r, _s: (ORDER - 1, 1),
        "r off by one": lambda r, s: (r + 1, s),
        "s off by one": lambda r, s: (r, s - 1),
        "r negated": lambda r, s: (ORDER - r, s),
    }
    for name, change in wrong.items():
        yield _case(name, resign(RECEIPT, change), "signature_invalid")
    yield _case("the other s of a receipt of ours", resign(RECEIPT, lambda r, s: (r, ORDER - s)), "signature_not_low_s")
    other_s = resign(PASSPORT, lambda r, s: (r, ORDER - s))
    yield _case("the other s of a passport of ours", other_s, "signature_not_low_s", kind="passport")
    for name, token in (("as signed", FOREIGN), ("with the other s", resign(FOREIGN, lambda r, s: (r, ORDER - s)))):
        yield _case(f"a passport of someone else's, {name}", token, kind="passport")
    theirs = mint(HEADER | {"kid": THEIRS.kid}, CLAIMS | {"iss": THEM, "verifier_id": THEM}, THEIRS)
    yield _case("a receipt of someone else's", theirs)
    other_s = resign(theirs, lambda r, s: (r, ORDER - s))
    yield _case("the other s of a receipt of someone else's", other_s, "signature_not_low_s")
    header, payload, signature = RECEIPT.split(".")
    yield _case(
        "payload of another receipt", f"{header}.{RECEIPTS[1].token.split('.')[1]}.{signature}", "signature_invalid"
    )
    yield _case(
        "signature of another receipt", f"{header}.{payload}.{RECEIPTS[1].token.split('.')[2]}", "signature_invalid"
    )
    yield _case("signed by a stranger under our kid", mint(HEADER, CLAIMS, STRANGER), "signature_invalid")


def _header_cases() -> Iterator[Case]:
    for crit in ([], ["b64"], ["exp"], ["kid"], None):
        yield _case(f"crit {crit}", mint(HEADER | {"crit": crit, "b64": False}, CLAIMS), "critical_header_refused")
    keys = {
        "jwk": STRANGER.public.to_jwk(),
        "jku": "https://keys.example/",
        "x5u": "https://keys.example/",
        "x5c": ["MIIB"],
        "x5t": "AAAA",
        "x5t#S256": "AAAA",
    }
    for name, item in keys.items():
        yield _case(f"{name} in the header", mint(HEADER | {name: item}, CLAIMS), "key_in_header_refused")
    for name in ("zip", "b64", "cty", "nonce", "x-made-up"):
        yield _case(f"{name} in the header", mint(HEADER | {name: "DEF"}, CLAIMS), "unknown_header_refused")
    for kid in ("../../etc/passwd", "' OR 1=1 --", "a\x00b", "x" * 129, "", " ", 7, None, [OURS.kid], "k\u00e9y"):
        name = f"kid {kid!r}"
        yield _case(name, mint(HEADER | {"kid": kid}, CLAIMS), "key_id_invalid")
    for kid in (STRANGER.kid, OURS.kid[:-1], OURS.kid.swapcase(), "key-1"):
        yield _case(f"unknown kid {kid}", mint(HEADER | {"kid": kid}, CLAIMS), "key_unknown")
    raw = json.dumps(HEADER)[1:-1]
    flawed = {
        "alg twice in the header": (f'{{"alg":"none",{raw}}}'.encode(), "json_duplicate_member"),
        "kid twice in the header": (f'{{{raw},"kid":"{OURS.kid}"}}'.encode(), "json_duplicate_member"),
        "header with a byte order mark": (b"\xef\xbb\xbf" + json.dumps(HEADER).encode(), "json_not_utf8"),
        "header in UTF-16": (json.dumps(HEADER).encode("utf-16"), "json_not_utf8"),
        "header that is an array": (b"[]", "json_syntax"),
        "header of more than 1024 bytes": (json.dumps(HEADER | {"kid": "x" * 10_000}).encode(), "json_too_large"),
        "header that is not JSON": (b"alg=ES256", "json_syntax"),
        "header nested too deep": (b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", "json_too_deep"),
    }
    for name, (header, fault) in flawed.items():
        yield _case(name, mint(header, CLAIMS), "token_header_invalid", fault=fault)


def _payload_cases() -> Iterator[Case]:
    raw = json.dumps(CLAIMS)[1:-1].encode()
    flawed = {
        "a member twice": (b"{" + raw + b',"verdict":"compliant"}', "json_duplicate_member"),
        "a member twice, once escaped": (b"{" + raw + b',"verd\\u0069ct":"compliant"}', "json_duplicate_member"),
        "a member twice, deep inside": (
            b"{" + raw + b',"evidence_proof_ref":{"type":"x","a":[{"b":1,"b":2}]}}',
            "json_duplicate_member",
        ),
        "NaN": (b"{" + raw + b',"x":NaN}', "json_number_refused"),
        "Infinity": (b"{" + raw + b',"x":Infinity}', "json_number_refused"),
        "1e400": (b"{" + raw + b',"x":1e400}', "json_number_refused"),
        "2^53": (b"{" + raw + b',"x":9007199254740992}', "json_number_refused"),
        "lone surrogate": (b"{" + raw + b',"x":"\\ud800"}', "json_lone_surrogate"),
        "byte order mark": (b"\xef\xbb\xbf{" + raw + b"}", "json_not_utf8"),
        "UTF-16": (json.dumps(CLAIMS).encode("utf-16"), "json_not_utf8"),
        "Latin-1": (b"{" + raw + b',"x":"\xe9"}', "json_not_utf8"),
        "not an object": (b'"claims"', "json_syntax"),
        "not JSON": (b"claims", "json_syntax"),
        "an unknown member": (json.dumps(CLAIMS | {"note": "hi"}).encode(), "field_invalid"),
        "a float for iat": (json.dumps(CLAIMS | {"iat": NOW + 0.5}).encode(), "field_invalid"),
        "1790000000.0 for iat": (json.dumps(CLAIMS | {"iat": float(NOW)}).encode(), "field_invalid"),
        "a string for exp": (json.dumps(CLAIMS | {"exp": str(NOW)}).encode(), "field_invalid"),
        "true for iat": (json.dumps(CLAIMS | {"iat": True}).encode(), "field_invalid"),
    }
    for name, (payload, fault) in flawed.items():
        yield _case(f"payload with {name}", mint(HEADER, payload), "payload_invalid", fault=fault)
    for issuer in (THEM, US.upper(), "", None, [US]):
        yield _case(f"iss {issuer!r}", mint(HEADER, CLAIMS | {"iss": issuer}), "issuer_mismatch")
    yield _case("no claims at all", mint(HEADER, {}), "issuer_mismatch")
    yield _case("spread out over lines", mint(HEADER, json.dumps(CLAIMS, indent=4).encode()))


def _passport_cases() -> Iterator[Case]:
    header = HEADER | {"typ": "remit-passport+jwt"}

    def changed(**members: object) -> str:
        return mint(header, {name: item for name, item in (PASSPORT_CLAIMS | members).items() if item is not ...})

    for name, token, result in (
        ("for someone else", changed(aud="someone"), "audience_mismatch"),
        ("for observation", changed(aud="remit:observe"), "audience_mismatch"),
        ("expired a minute ago", changed(iat=NOW - 960, nbf=NOW - 960, exp=NOW - 60), "passport_expired"),
        ("expired less than a minute ago", changed(iat=NOW - 959, nbf=NOW - 959, exp=NOW - 59), "ok"),
        ("good in a minute", changed(iat=NOW, nbf=NOW + 60), "ok"),
        ("good in more than a minute", changed(iat=NOW, nbf=NOW + 61), "passport_not_yet_valid"),
    ):
        yield _case(f"passport {name}", token, result, kind="passport")
    for name, token in (
        ("aud as a list", changed(aud=["remit"])),
        ("no aud", changed(aud=...)),
        ("no exp", changed(exp=...)),
        ("no max_tool_calls", changed(max_tool_calls=...)),
        ("a longer life than max_duration_s", changed(exp=NOW + 901)),
        ("exp before nbf", changed(nbf=NOW + 900)),
        ("a float exp", changed(exp=NOW + 10.5)),
        ("an unknown limit", changed(max_bytes=5)),
        ("a short jti", changed(jti="short")),
        ("a depth without a parent", changed(delegation_depth=1)),
        ("a control character in a tool name", changed(allowed_tools=["read\nfile"])),
        ("an unknown side effect", changed(allowed_side_effect_classes=["all"])),
        ("two confirmations", changed(cnf={"jkt": "A" * 43, "x5t#S256": "A" * 43})),
    ):
        yield _case(f"passport with {name}", token, "payload_invalid", kind="passport", fault="field_invalid")


def _key_change_cases() -> Iterator[Case]:
    claims = _claims_of(OF_KIND["key change"])
    jwk = NEXT.public.to_jwk()

    def changed(successor: object = jwk, **members: object) -> str:
        return mint(HEADER | {"typ": "remit-key-change+jwt"}, claims | {"successor": successor} | members)

    for name, token in (
        ("a successor without a kid", changed({member: jwk[member] for member in jwk if member != "kid"})),
        ("a successor called by another name", changed(jwk | {"kid": "key-1"})),
        ("a successor with a member more", changed(jwk | {"ext": "true"})),
        ("a successor with its private half", changed(jwk | {"d": "AAAA"})),
        ("a successor that is no point", changed(jwk | {"y": "A" * 43})),
        ("a successor on another curve", changed(jwk | {"crv": "P-384"})),
        ("the same key as successor", changed(OURS.public.to_jwk())),
        ("a successor by address", changed("https://keys.example/")),
        ("a short jti", changed(jti="short")),
        ("a member more", changed(exp=NOW)),
    ):
        yield _case(f"key change with {name}", token, "payload_invalid", kind="key change", fault="field_invalid")
    header = {"alg": "ES256", "kid": THEIRS.kid, "typ": "remit-key-change+jwt"}
    theirs = mint(header, claims | {"iss": THEM}, THEIRS)
    yield _case("key change by someone else's key", theirs, "key_use_forbidden", kind="key change")
    other_s = resign(OF_KIND["key change"], lambda r, s: (r, ORDER - s))
    yield _case("the other s of a key change", other_s, "signature_not_low_s", kind="key change")


def _bookmark_cases() -> Iterator[Case]:
    yield _case("bookmark before the first receipt", bookmark([]), kind="bookmark")
    claims = _claims_of(OF_KIND["bookmark"])
    header = HEADER | {"typ": "remit-bookmark+jwt"}
    for name, member, change in (
        ("another length than was counted", "head", {"length": 6}),
        ("another last receipt than was counted", "head", {"receipt_id": "rcpt:" + "0" * 32}),
        ("a hash in capitals", "head", {"receipt_hash": claims["head"]["receipt_hash"].upper()}),
        ("no kid", "head", {"kid": None}),
        ("counts that do not add up", "tally", {"tools": {"read_file": 6}}),
        ("a peak too few", "tally", {"tree": claims["tally"]["tree"] | {"peaks": []}}),
    ):
        token = mint(header, claims | {member: claims[member] | change})
        yield _case(f"bookmark with {name}", token, "payload_invalid", kind="bookmark", fault="field_invalid")
    theirs = mint(header | {"kid": THEIRS.kid}, claims | {"iss": THEM}, THEIRS)
    yield _case("bookmark by someone else's key", theirs, "key_use_forbidden", kind="bookmark")


def _claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads(decode_base64url(token.split(".")[1]))
    return claims
