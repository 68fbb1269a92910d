"""Plain values: receipts' claims, canonical forms, strict JSON, missions, Merkle trees."""

from collections.abc import Iterator
from typing import Final

from msgspec import to_builtins

from remit.claims.canonical import sha256_hex
from remit.claims.merkle import hash_leaf, merkle_root, prove_consistency, prove_inclusion
from vectors.making.world import CLAIMS, MISSION, Case


def receipt_cases() -> Iterator[Case]:
    """Yield claims sets that are valid, or break one rule; `place` is the member at fault."""
    digest = {"alg": "sha-256", "value": "A" * 43, "canonicalization": "none", "scope": "result"}
    measured = {
        "kind": "telemetry",
        "status": "not-run",
        "digest": digest,
        "collected_at": "2026-09-21T13:33:20.5+02:00",
    }
    denial = {"verdict": "violation", "public_denial_reason": "revoked", "internal_denial_code": "kill_switch"}
    lineage_delta = {"operation": "reserve", "resource": "tool_calls", "amount": 5, "unit": "invocations"}
    valid: dict[str, Case] = {
        "as made": {},
        "denied": denial,
        "not enough evidence": denial | {"verdict": "insufficient_evidence"},
        "longest strings": {"target": "\u00e9" * 2048, "reason": "\U0001f600" * 4096, "receipt_id": "a" * 64},
        "no policy decisions, no budgets": {"policy_decisions": [], "budget_remaining": {}},
        "upper-case hash": {"arguments_hash": "A" * 64},
        "leap second": {"timestamp": "2016-12-31T23:59:60Z"},
        "leap second in another zone": {"timestamp": "2016-12-31T15:59:60.25-08:00"},
        "lower-case date-time": {"timestamp": "2026-09-21t13:33:20z"},
        "legacy budget delta": {"budget_delta": {"bucket": "calls", "unit": "usd", "delta": 0, "ceiling": 9}},
        "lineage budget delta": {"budget_delta": lineage_delta | {"idempotent": True, "side_effect_class": "none"}},
        "proof reference as text": {"evidence_proof_ref": "log:1"},
        "proof reference with members of others": {"evidence_proof_ref": {"type": "t", "uri": "u", "mine": [1, None]}},
        "measurements": {"measurements": {"disk.state": measured}},
        "provenance": {"content_provenance": {"source": "mixed", "evidence_refs": ["evidence"], "transformed": False}},
        "digest that names no canonical form": {"invocation_digest": {"alg": "sha-256", "value": "A" * 43}},
        "null reason of an engine": {
            "policy_decisions": [{"backend": "b", "decision": "d", "reason": None, "eval_ms": 0}]
        },
    }
    for name, change in valid.items():
        yield {"name": name, "claims": CLAIMS | change, "result": "ok"}
    for name, place, change in (
        ("short id", "$.receipt_id", {"receipt_id": "1234567"}),
        ("long id", "$.trace_id", {"trace_id": "a" * 65}),
        ("newline after an id", "$.grant_id", {"grant_id": "pass:vectors:0001\n"}),
        ("empty parent id", "$.parent_receipt_id", {"parent_receipt_id": ""}),
        ("short hash", "$.parent_receipt_hash", {"parent_receipt_hash": "a" * 63}),
        ("short nonce", "$.run_nonce", {"run_nonce": "a" * 15}),
        ("padded nonce", "$.run_nonce", {"run_nonce": "a" * 23 + "="}),
        ("empty actor", "$.actor", {"actor": ""}),
        ("unknown action class", "$.action_class", {"action_class": "execute"}),
        ("empty target", "$.target", {"target": ""}),
        ("long target", "$.target", {"target": "a" * 2049}),
        ("long reason", "$.reason", {"reason": "a" * 4097}),
        ("negative counter", "$.budget_remaining[...]", {"budget_remaining": {"tool_calls": -1}}),
        ("odd counter name", "$.budget_remaining", {"budget_remaining": {"tool calls": 1}}),
        ("no time zone", "$.timestamp", {"timestamp": "2026-09-21T13:33:20"}),
        ("day that is not", "$.timestamp", {"timestamp": "2026-02-29T00:00:00Z"}),
        ("leap second at noon", "$.timestamp", {"timestamp": "2016-12-31T12:00:60Z"}),
        ("null for an optional member", "$.content_class", {"content_class": None}),
        ("unknown digest algorithm", "$.invocation_digest.alg", {"invocation_digest": digest | {"alg": "md5"}}),
        ("unknown member", "$", {"signature": "x"}),
        ("unknown member inside", "$.invocation_digest", {"invocation_digest": digest | {"note": "x"}}),
        ("denial reason on a permit", "$.verdict", {"public_denial_reason": "revoked"}),
        ("denial code on a permit", "$.verdict", {"internal_denial_code": "x"}),
        ("denial without a code", "$.verdict", {"verdict": "violation", "public_denial_reason": "revoked"}),
        ("denial without a reason", "$.verdict", {"verdict": "violation", "internal_denial_code": "x"}),
        ("empty measurements", "$.measurements", {"measurements": {}}),
        (
            "both budget deltas at once",
            "$.budget_delta",
            {"budget_delta": lineage_delta | {"bucket": "calls", "delta": 1}},
        ),
        ("proof reference without type", "$.evidence_proof_ref.type", {"evidence_proof_ref": {"uri": "u"}}),
        (
            "negative evaluation time",
            "$.policy_decisions[0].eval_ms",
            {"policy_decisions": [{"backend": "b", "decision": "d", "eval_ms": -1}]},
        ),
    ):
        yield {"name": name, "claims": CLAIMS | change, "result": "field_invalid", "place": place}
    for member in ("receipt_id", "parent_receipt_hash", "verdict", "exp"):
        claims = {name: item for name, item in CLAIMS.items() if name != member}
        yield {"name": f"no {member}", "claims": claims, "result": "field_invalid", "place": "$"}


def canonical_cases() -> Iterator[Case]:
    """Yield texts with their canonical form: order, escapes, numbers."""
    for name, text, form in (
        (
            "members by UTF-16 unit",
            '{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":3,"\\r":4,"1":5,"\\u0080":6,"\\u00f6":7}',
            '{"\\r":4,"1":5,"\u0080":6,"\u00f6":7,"\u20ac":3,"\U0001f600":2,"\ufb33":1}',
        ),
        (
            "members at every depth",
            '{"b":[{"d":1,"c":{"f":null,"e":[]}}],"a":{}}',
            '{"a":{},"b":[{"c":{"e":[],"f":null},"d":1}]}',
        ),
        (
            "no space, no needless escapes",
            ' { "a" : "\\u0041\\/\\u00e9" , "b" : [ true , false ] } ',
            '{"a":"A/\u00e9","b":[true,false]}',
        ),
        (
            "control characters",
            '"\\u0000\\u0008\\u0009\\u000a\\u000c\\u000d\\u001b\\u007f\\"\\\\"',
            '"\\u0000\\b\\t\\n\\f\\r\\u001b\u007f\\"\\\\"',
        ),
        ("not normalised", '"e\\u0301"', '"e\u0301"'),
        (
            "numbers",
            "[1.0,1e2,1E-7,0.1e1,-0,-0.0,4.50,1e21,333333333.33333329]",
            "[1,100,1e-7,1,0,0,4.5,1e+21,333333333.3333333]",
        ),
        ("empty name", '{"":1,"a":2}', '{"":1,"a":2}'),
        ("largest integers", "[9007199254740991,-9007199254740991]", "[9007199254740991,-9007199254740991]"),
    ):
        yield {"name": name, "json": text, "canonical": form, "sha256": sha256_hex(form.encode())}


def argument_cases() -> Iterator[Case]:
    """Yield arguments of tool calls with their forms, which are not all RFC 8785's, or with the code and the place."""
    most = "9" * 64
    for name, text, form, is_jcs in (
        ("plain", '{"path":"a","n":1.50}', '{"n":1.5,"path":"a"}', True),
        ("the largest integer of RFC 8785", '{"n":9007199254740991}', '{"n":9007199254740991}', True),
        ("the first beyond it", '{"n":9007199254740992}', '{"n":9007199254740992}', False),
        (
            "neighbours of what a double can hold",
            '{"b":-9007199254740993,"a":9007199254740993}',
            '{"a":9007199254740993,"b":-9007199254740993}',
            False,
        ),
        ("an id of 64 bits", '{"id": 18446744073709551615}', '{"id":18446744073709551615}', False),
        ("64 digits", f'{{"n":{most}}}', f'{{"n":{most}}}', False),
        ("64 digits and a sign", f"[-{most}]", f"[-{most}]", False),
        (
            "beside names and numbers of all kinds",
            '{"\\ufb33":[1e21,1e-7,-0.0,0.5],"\\ud83d\\ude00":{"z":10000000000000000000000,"":null}}',
            '{"\U0001f600":{"":null,"z":10000000000000000000000},"\ufb33":[1e+21,1e-7,0,0.5]}',
            False,
        ),
        ("a double with the digits of RFC 8785", '{"n":1e20}', '{"n":100000000000000000000}', True),
        ("a double with other digits", '{"n":295147905179352830000.0}', '{"n":295147905179352825856}', False),
        ("the integer of those digits", '{"n":295147905179352830000}', '{"n":295147905179352830000}', False),
    ):
        yield {
            "name": name,
            "json": text,
            "form": form,
            "sha256": sha256_hex(form.encode()),
            "canonicalization": "jcs-rfc8785" if is_jcs else None,
            "result": "ok",
        }
    yield {"name": "65 digits", "json": f'{{"a":[{most}9]}}', "result": "json_too_large", "place": "$.a[0]"}


# IEEE 754 bits and the digits that RFC 8785 gives them.
NUMBERS: Final = """
0000000000000000 0                       8000000000000000 0
0000000000000001 5e-324                  8000000000000001 -5e-324
7fefffffffffffff 1.7976931348623157e+308 ffefffffffffffff -1.7976931348623157e+308
4340000000000000 9007199254740992        c340000000000000 -9007199254740992
4430000000000000 295147905179352830000   44b52d02c7e14af5 9.999999999999997e+22
44b52d02c7e14af6 1e+23                   44b52d02c7e14af7 1.0000000000000001e+23
444b1ae4d6e2ef4e 999999999999999700000   444b1ae4d6e2ef4f 999999999999999900000
444b1ae4d6e2ef50 1e+21                   3eb0c6f7a0b5ed8c 9.999999999999997e-7
3eb0c6f7a0b5ed8d 0.000001                41b3de4355555553 333333333.3333332
41b3de4355555554 333333333.33333325      41b3de4355555555 333333333.3333333
41b3de4355555556 333333333.3333334       41b3de4355555557 333333333.33333343
becbf647612f3696 -0.0000033333333333333333 43143ff3c1cb0959 1424953923781206.2
"""


def json_cases() -> Iterator[Case]:
    """Yield byte strings (hex) that the strict reader refuses, with code and place, or takes."""
    for name, data, result, place in (
        ("compact", b'{"a":[1,"x",null]}', "ok", None),
        ("spread out", b' { "a" : 1 }\r\n', "ok", None),
        ("64 deep", b"[" * 64 + b"]" * 64, "ok", None),
        ("65 deep", b"[" * 65 + b"]" * 65, "json_too_deep", "$" + "[0]" * 16),
        ("one name twice", b'{"a":1,"a":1}', "json_duplicate_member", "$"),
        ("one name twice, once escaped", b'{"x":{"a":1,"\\u0061":1}}', "json_duplicate_member", "$.x"),
        ("byte order mark", b"\xef\xbb\xbf{}", "json_not_utf8", "$"),
        ("UTF-16", "{}".encode("utf-16-le"), "json_syntax", "$"),
        ("overlong UTF-8", b'"\xc0\xaf"', "json_not_utf8", "$"),
        ("surrogate in UTF-8", b'"\xed\xa0\x80"', "json_not_utf8", "$"),
        ("half a character", b'["\\ud83d"]', "json_lone_surrogate", "$[0]"),
        ("halves in the wrong order", b'["\\ude00\\ud83d"]', "json_lone_surrogate", "$[0]"),
        ("NaN", b'{"a":NaN}', "json_number_refused", "$.a"),
        ("beyond a double", b"[1e309]", "json_number_refused", "$[0]"),
        ("2^53", b"[9007199254740992]", "json_number_refused", "$[0]"),
        ("a number of 65 characters", b"[0." + b"1" * 63 + b"]", "json_too_large", "$[0]"),
        ("comma at the end", b"[1,]", "json_syntax", "$"),
        ("comment", b"/**/1", "json_syntax", "$"),
        ("tab in a string", b'"\t"', "json_syntax", "$"),
        ("empty", b"", "json_syntax", "$"),
    ):
        yield {"name": name, "hex": data.hex(), "result": result} | ({"place": place} if place else {})


def mission_cases() -> Iterator[Case]:
    """Yield what a delegate asks of MISSION, and the member that is wider, if any."""
    asked = {"agent_id": "agent:helper", "mission": "Read the diff", "max_tool_calls": 5, "max_duration_s": 60}
    for name, change, member in (
        ("nothing", {}, None),
        ("an allowed tool", {"allowed_tools": ["read_file"]}, None),
        ("a tool that a glob allows", {"allowed_tools": ["git_log"]}, None),
        ("a narrower glob", {"allowed_tools": ["git_l*"]}, None),
        ("the same glob", {"allowed_tools": ["git_*"]}, None),
        ("another tool", {"allowed_tools": ["write_file"]}, "allowed_tools"),
        ("a wider glob", {"allowed_tools": ["gi*"]}, "allowed_tools"),
        ("every tool", {"allowed_tools": ["*"]}, "allowed_tools"),
        ("a glob in another case", {"allowed_tools": ["GIT_log"]}, "allowed_tools"),
        ("the same folder", {"resource_scope": ["/work/project"]}, None),
        ("a folder below", {"resource_scope": ["/work/project/src"]}, None),
        ("a glob below", {"resource_scope": ["/work/project/**"]}, None),
        ("a relative path", {"resource_scope": ["src"]}, None),
        ("a relative path from elsewhere", {"resource_scope": ["src"], "cwd": "/work"}, "resource_scope"),
        ("the folder above", {"resource_scope": ["/work"]}, "resource_scope"),
        ("a sibling with the same beginning", {"resource_scope": ["/work/project-two"]}, "resource_scope"),
        ("a way up", {"resource_scope": ["/work/project/../other"]}, "resource_scope"),
        ("everything", {"resource_scope": ["**"]}, "resource_scope"),
        ("a glob that starts above", {"resource_scope": ["/work/pro*"]}, "resource_scope"),
        ("a page below", {"resource_scope": ["https://docs.example/api/v1"]}, None),
        ("another page", {"resource_scope": ["https://docs.example/apis"]}, "resource_scope"),
        ("another host", {"resource_scope": ["https://docs.example.org/api"]}, "resource_scope"),
        ("another scheme", {"resource_scope": ["http://docs.example/api"]}, "resource_scope"),
        ("an escaped way up", {"resource_scope": ["https://docs.example/api/%2e%2e/x"]}, "resource_scope"),
        ("a way up behind a space", {"resource_scope": ["https://docs.example/api/.. "]}, "resource_scope"),
        ("a way up in another script", {"resource_scope": ["/work/project/..\uff0fother"]}, "resource_scope"),
        ("a name in any script", {"resource_scope": ["/work/project/\u00fcber"]}, None),
        ("the folder with a slash", {"resource_scope": ["/work/project/"]}, None),
        ("the same working directory", {"cwd": "/work/project"}, None),
        ("a working directory below", {"cwd": "/work/project/src"}, None),
        ("a working directory above", {"cwd": "/work"}, "cwd"),
        ("a working directory elsewhere", {"cwd": "/etc"}, "cwd"),
        ("a working directory by a way up", {"cwd": "/work/project/../../etc"}, "cwd"),
        ("a relative working directory", {"cwd": "src"}, "cwd"),
        ("a glob as working directory", {"cwd": "/work/project/*"}, "cwd"),
        ("more calls", {"max_tool_calls": 21}, "max_tool_calls"),
        ("more time", {"max_duration_s": 901}, "max_duration_s"),
    ):
        result = {"result": "mission_widened", "member": member} if member else {"result": "ok"}
        yield {"name": name, "parent": to_builtins(MISSION), "child": asked | change} | result


def merkle_cases() -> Iterator[Case]:
    """Yield trees over the entries "0", "1", ... with roots and proofs."""
    for size in range(9):
        leaves = [hash_leaf(str(number).encode()) for number in range(size)]
        yield {
            "size": size,
            "root": merkle_root(leaves).hex(),
            "inclusion": [[node.hex() for node in prove_inclusion(leaves, index)] for index in range(size)],
            "consistency": [[node.hex() for node in prove_consistency(leaves, old)] for old in range(1, size + 1)],
        }
