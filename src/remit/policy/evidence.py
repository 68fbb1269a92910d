"""Describes an action in a receipt, with secrets removed.

A receipt has the digest of the effects and a short description; the effects themselves can be checked against the
digest later. The receipt also says if static policy does not restrict what runs, and what would have permitted a denied
call.

Receipts are kept for a long time and shown to many people. These texts never appear in one: the user and query of a
URL, a value assigned to a name such as `token`, tokens of well-known forms, and parts of a URL path that look random or
follow the prefix of a webhook. Secrets are recognized by position and form, which has limits: one that stands alone and
looks like a word is not found.
"""

import re
from typing import Final

from msgspec.json import Encoder

from remit.claims.canonical import canonicalize, sha256_base64url
from remit.claims.receipt import Digest, Measurement
from remit.claims.strictjson import JSON
from remit.errors import NotCanonicalizable
from remit.policy.call import Action, Effect
from remit.policy.engines import Remedy

CALL_MEASUREMENT: Final = "remit.call"
EFFECTS_MEASUREMENT: Final = "remit.effects"
REMEDY_MEASUREMENT: Final = "remit.remedy"
STATIC_SCOPE_ONLY: Final = "remit.static_scope_only"
_json: Final = Encoder().encode
_MAX_DESCRIPTION: Final = 512
_MAX_REMEDY: Final = 1024
_MAX_SEARCHED: Final = 4 * _MAX_DESCRIPTION
_VERB_TEXT: Final = {
    "read": "reads", "write": "writes", "delete": "deletes", "contact": "contacts", "send": "sends to", "run": "runs",
    "setenv": "sets", "escalate": "acts as", "export": "exports credentials with",
    "manage": "manages",
}  # fmt: skip
_HIDDEN: Final = "…"
_NAME: Final = (
    r"(?:secret|passw(?:or)?d|passphrase|pwd|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|credential|signature"
    r"|auth(?:orization)?|cookie)"
)
# Each pattern has a cheap test first: a character without which it cannot match.
_PATTERNS: Final = (
    # User and password of a URL.
    (re.compile("@"), re.compile(r"(?<=://)[^\s/@'\"<>]{1,1024}@"), f"{_HIDDEN}@"),
    # Values in a query string or form.
    (re.compile("="), re.compile(r"([?&][^\s=&?'\"#<>]{1,256}=)[^\s&'\"#<>]+"), rf"\1{_HIDDEN}"),
    (re.compile(r"[rRcC]\s"), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{4,}"), rf"\1 {_HIDDEN}"),
    (
        re.compile("[=:]"),
        re.compile(rf"(?i)({_NAME}[\w-]{{0,64}}['\"]?\s?[=:]\s?['\"]?)(?!{_HIDDEN})[^\s&'\",;)<>]+"),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(r" (?i:is|was) "), re.compile(rf"(?i)\b({_NAME} (?:is|was) )(?!{_HIDDEN})\S+"), rf"\1{_HIDDEN}"),
)
# Tokens with a known prefix. Only texts with a long enough run of characters are searched.
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9_-]{12}")
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl(?:pat|ptt|dt|rt|cbt|ft|soat|imt|agent)-[\w-]{16,}"
    r"|sk-[\w-]{16,}|[srp]k_(?:live|test)_\w{10,}|whsec_\w{16,}|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{16,}|1//0[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{2,}(?:\.[\w-]*)*|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{20,}|hf_[A-Za-z0-9]{16,}"
    r"|SG\.[\w-]{10,}\.[\w-]{10,}|key-[0-9a-f]{32}|do[op]_v1_[0-9a-f]{16,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{16,}"
    r"|dckr_pat_[\w-]{16,}|hv[sbr]\.[\w-]{16,}|lin_api_\w{16,}|ntn_\w{16,}|secret_\w{16,}|sbp_\w{16,}|tskey-[\w-]{10,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{10,}|PMAK-[\w-]{16,}|rubygems_[0-9a-f]{16,}|EAA[A-Za-z0-9]{20,}|sq0[a-z]{3}-[\w-]{16,}"
    r"|bot[0-9]{6,}:[\w-]{20,}|[0-9]{8,10}:AA[\w-]{30,}"
    r")"
)
_URL: Final = re.compile(r"(?<=://)[^\s'\"<>]+")
# URL prefixes of webhooks; the rest of the path is a secret.
_WEBHOOK: Final = re.compile(
    r"\A((?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks"
    r"|hooks\.zapier\.com/hooks|[\w.-]{0,200}webhook\.office\.com|outlook\.office(?:365)?\.com/webhook|webhook\.site"
    r"|maker\.ifttt\.com/trigger/[^/]+(?:/json)?/with/key|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook"
    r"|hc-ping\.com|[\w.-]{1,200}\.logic\.azure\.com(?::443)?/workflows|hooks\.[\w.-]{1,200}|api\.telegram\.org/(?=bot)))"
    r"/?[^?#]+",
    re.IGNORECASE,
)
# A path component that is long enough for a secret and has a digit.
_LONG_PART: Final = re.compile(r"[/#](?=[^/#]{8})[^/#0-9]*[0-9]")
# Path components that are often followed by a secret.
_SECRET_FOLLOWS: Final = re.compile(
    r"(?:web)?hooks?|bots?|tokens?|secrets?|keys?|private|magic|invites?|reset|verify|confirm|activate|unsubscribe|shared?",
    re.IGNORECASE,
)
_DIGEST: Final = re.compile(r"[0-9a-f]{40}|sha[0-9]+[:-].*|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_RUN: Final = re.compile(r"[A-Za-z0-9]{16,}")
_PIECE: Final = re.compile(r"[A-Za-z0-9_-]{24,}")
_WORDS: Final = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{4,}")
_SWITCH: Final = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
_FILE_NAME: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}\Z")
_LONG: Final = 80
_SHORT_SECRET: Final = 8
_FEW: Final = 2
_MANY: Final = 5
_HALF: Final = 0.5


def describe(effect: Effect) -> str:
    """Return a short text for one effect."""
    below = "/…" if effect.beneath else ""
    return f"{_VERB_TEXT[effect.verb]} {effect.resource}{below}"


def effects_json(action: Action) -> list[JSON]:
    """Return the effects and doubts of an action as JSON values, in the order they were recorded."""
    items: list[JSON] = [
        {"beneath": effect.beneath, "resource": effect.resource, "verb": effect.verb} for effect in action.effects
    ]
    if action.doubts:
        items.extend({"doubt": doubt.word, "reason": doubt.reason} for doubt in action.doubts)
    return items


def measurements(action: Action, remedy: Remedy | None = None, envelope: str = "") -> dict[str, Measurement]:
    """Return the measurements of a receipt: effects, remedy of a denial, and origin of the call."""
    items = origin_measurement(envelope) if envelope else {}
    if action.effects or action.doubts:
        try:
            effects = effects_json(action)
            # For strings and booleans with sorted names, plain JSON is the canonical form.
            form = canonicalize(effects) if action.doubts else _json(effects)
        except UnicodeEncodeError:
            raise NotCanonicalizable("has no canonical form") from None
        items[EFFECTS_MEASUREMENT] = Measurement(
            kind="custom",
            status="fail" if action.doubts else "success",
            digest=Digest(
                alg="sha-256",
                value=sha256_base64url(form),
                canonicalization="jcs-rfc8785",
                scope="measurement",
            ),
            description=_summary(action),
        )
    if action.runs_code:
        items[STATIC_SCOPE_ONLY] = Measurement(
            kind="custom",
            status="not-run",
            description="runs code of the project, which static policy does not bound",
        )
    if remedy is not None:
        items[REMEDY_MEASUREMENT] = Measurement(
            kind="custom", status="absent", description=_clip(remedy.sentence, _MAX_REMEDY)
        )
    return items


def origin_measurement(envelope: str) -> dict[str, Measurement]:
    """Return the measurement that records where a call came from."""
    description = _clip(envelope, _MAX_DESCRIPTION)
    return {CALL_MEASUREMENT: Measurement(kind="envelope_binding", status="success", description=description)}


def _summary(action: Action) -> str:
    """Return a short text for all effects, grouped by verb."""
    named: dict[str, list[str]] = {}
    for effect in action.effects[:_MAX_DESCRIPTION]:
        below = "/…" if effect.beneath else ""
        named.setdefault(effect.verb, []).append(effect.resource[:_MAX_SEARCHED] + below)
    parts: list[str] = []
    for verb, resources in named.items():
        parts.append(f"{_VERB_TEXT[verb]} {', '.join(dict.fromkeys(resources))}")
    if action.doubts:
        parts.append(f"cannot tell what is done with {len(action.doubts)} of its words")
    # Redact before cutting: a partial secret is not recognized.
    text = redact("; ".join(parts)[:_MAX_SEARCHED])
    return text if len(text) <= _MAX_DESCRIPTION else _clip(text, _MAX_DESCRIPTION)


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def redact(text: str) -> str:
    """Return the text with everything that may be a secret replaced."""
    for marks, pattern, instead in _PATTERNS:
        if marks.search(text):
            text = pattern.sub(instead, text)
    if _LONG_WORD.search(text):
        text = _TOKEN.sub(_HIDDEN, text)
    return _URL.sub(_hide_in_path, text) if "://" in text else text


def _hide_in_path(found: re.Match[str]) -> str:
    """Return the part of a URL after the scheme, with path components that may be secrets replaced."""
    address = found[0]
    hidden, count = _WEBHOOK.subn(rf"\1/{_HIDDEN}", address, count=1)
    if count:
        return hidden
    if not _LONG_PART.search(address):
        return address
    before, *parts = re.split(r"([/#])", address)
    follows = False
    for at in range(1, len(parts), 2):
        part = parts[at]
        if _is_random(part) or (follows and _may_be_secret(part)):
            parts[at] = _HIDDEN
        follows = (follows and not part) or _SECRET_FOLLOWS.fullmatch(part) is not None
    return "".join((before, *parts))


def _may_be_secret(part: str) -> bool:
    """Return whether a path component in a likely position can be a secret: long enough, with letters and digits."""
    return len(part) >= _SHORT_SECRET and any(map(str.isdigit, part)) and not part.isdigit()


def _is_random(part: str) -> bool:
    """Return whether a path component looks random: letters and digits mixed unlike words, names or versions.

    Digests of commits and images, and UUIDs, are not secrets.
    """
    name = part.partition("?")[0]
    if _DIGEST.fullmatch(name):
        return False
    if any(_is_mixed(run) for run in _RUN.findall(name)):
        return True
    return not _FILE_NAME.search(name) and any(map(_has_all_kinds, _PIECE.findall(name)))


def _is_mixed(run: str) -> bool:
    digits = sum(map(str.isdigit, run))
    if digits < _FEW or len(run) - digits <= _FEW:
        return False
    return len(_SWITCH.findall(run)) >= _MANY or _wordiness(run) < _HALF


def _has_all_kinds(piece: str) -> bool:
    kinds = (str.isdigit, str.isupper, str.islower)
    return all(any(map(kind, piece)) for kind in kinds) and _wordiness(piece) < _HALF


def _wordiness(text: str) -> float:
    """Return the fraction of a text that consists of letters that may be words."""
    return sum(map(len, _WORDS.findall(text))) / len(text)


def quote_word(word: str) -> str:
    """Return a word of a call for use in a sentence: quoted, redacted, and cut after the first blank."""
    first, space, _ = word.strip().partition("\n")[0].partition(" ")
    # Redact before cutting: a partial secret is not recognized.
    shown = redact(first)[:_LONG]
    cut = bool(space) or len(first) > _LONG or len(first) < len(word.strip())
    return repr(shown + (_HIDDEN if cut else ""))
