"""Every error that users and clients can get, in one tree.

Families say who or what is wrong and end in `Error`; leaves state the fact. `code` is contract and never
changes; the message is for people and may. Nothing here carries a secret, a full local path or a raw value
that is not quoted and clipped.

    RemitError
    ├── InputError                  bytes or values from outside are not acceptable
    │   ├── JsonTooLarge            more bytes, members, characters or digits than the limit
    │   ├── JsonNotUtf8             not UTF-8, or starts with a byte order mark
    │   ├── JsonSyntax              not JSON
    │   ├── JsonDuplicateMember     one name twice in an object
    │   ├── JsonNumberRefused       NaN, Infinity, or a number that JSON cannot carry exactly
    │   ├── JsonLoneSurrogate       a lone surrogate
    │   ├── JsonTooDeep             nested deeper than the limit
    │   ├── FieldInvalid            a member is missing, unknown or breaks its rule
    │   ├── NotCanonicalizable      a value has no RFC 8785 form
    │   ├── ShellUnparsed           a command line cannot be parsed as bash does
    │   └── PolicyInvalid           a policy file that its engine cannot use
    ├── KeyMaterialError            a key cannot be used
    │   ├── KeyMalformed            not a key in the stated format
    │   ├── KeyNotP256              a key of another algorithm or curve
    │   ├── KeyUseForbidden         the key is marked as not for verifying
    │   └── KeyConflict             two different trusted keys under one id
    ├── TokenError                  a signed token is not valid
    │   ├── TokenTooLarge           longer than its kind allows
    │   ├── TokenMalformed          not three parts with a 64-byte signature
    │   ├── TokenEncodingInvalid    not strict base64url
    │   ├── TokenHeaderInvalid      the header is not strict JSON with the members it needs
    │   ├── AlgorithmRefused        any algorithm but ES256
    │   ├── TokenKindMismatch       a `typ` of another kind
    │   ├── CriticalHeaderRefused   `crit` is present
    │   ├── KeyInHeaderRefused      the header has a key, or a URL of one
    │   ├── UnknownHeaderRefused    an unknown header member
    │   ├── KeyIdInvalid            `kid` is not a well-formed key id
    │   ├── KeyUnknown              `kid` names no trusted key
    │   ├── KeyPeriodEnded          not known to be signed within the period of its key
    │   ├── SignatureOutOfRange     r or s is not between 1 and n - 1
    │   ├── SignatureNotLowS        a high-S signature; tokens must have one form
    │   ├── SignatureInvalid        the signature does not verify
    │   ├── PayloadInvalid          the signed payload does not fit its kind
    │   └── IssuerMismatch          `iss` is not the issuer that the key is trusted for
    ├── PassportError               a verified passport does not apply
    │   ├── PassportExpired         `exp` has passed
    │   ├── PassportNotYetValid     `nbf` or `iat` is in the future
    │   ├── PassportRevoked         it, or one that it was delegated from, was revoked
    │   ├── PassportUnregistered    it names this home as its issuer, and the home has not registered it
    │   ├── LineageUnknown          a delegate's passport that was not delegated here
    │   ├── AudienceMismatch        made for another service or another use
    │   ├── MissionWidened          a delegate requests more than its parent has
    │   └── DelegationTooDeep       the lineage is longer than allowed
    ├── EvidenceError               evidence contradicts itself
    │   ├── BrokenChain             receipts do not form one chain; has the place and reason
    │   ├── ProofInvalid            a Merkle proof does not verify
    │   └── AttestationMismatch     an attestation does not describe these receipts
    ├── RequestError                a request that contradicts the state
    │   ├── SessionNotFound         no session has this id
    │   ├── ReceiptNotFound         no receipt of the session has this id
    │   ├── ProtectionNotFound      no protection of an assistant has this name
    │   ├── SessionSealed           the session comes from an older copy, and gets no more receipts
    │   ├── RequestConflict         a key or id used before, for something else
    │   ├── KillSwitchOn            no session starts until it is released
    │   ├── RateLimited             too many calls in a session that permits nothing any more; not evaluated
    │   └── HolderMismatch          a session or passport of another holder
    ├── AccessError                 an HTTP request that is not served
    │   ├── HttpMalformed           not strict HTTP
    │   ├── HeadersTooLarge         more or longer header fields than the limit
    │   ├── BodyTooLarge            more bytes than the limit
    │   ├── RequestTooSlow          it did not arrive in time
    │   ├── HostRefused             `Host` names another server
    │   ├── RouteNotFound           the path does not exist
    │   ├── MethodRefused           the path exists, for another method
    │   ├── MediaTypeRefused        a body that is not plain JSON
    │   ├── OriginRefused           a page of another origin requests a change
    │   ├── TokenRequired           the token is missing or wrong
    │   ├── HubTokenRequired        the Hub's token is missing or wrong
    │   ├── HookSecretWrong         an event of an assistant does not show the secret of its session
    │   ├── TooManyTries            too many wrong tokens
    │   └── ServiceBusy             more at once than the limit
    ├── ServiceError                a Remit service cannot be reached or started
    │   ├── ServiceUnavailable      no answer
    │   ├── HubUnavailable          no answer from the Hub
    │   ├── ServiceRefused          an answer with an error
    │   ├── PortInUse               another program listens there
    │   └── CertificateUnusable     a certificate, its key or an authority that TLS cannot use
    ├── LedgerError                 the ledger cannot do what was requested
    │   ├── LedgerUnavailable       nothing is known to be written, and no decision is given
    │   └── HeadMoved               a chain has grown since its head was read
    └── StateError                  the state on this machine cannot be used
        ├── HomeUnsafe              a folder or file of the home is accessible to others
        ├── StateCorrupt            a file is damaged, or the ledger fails its check
        ├── StateMissing            a key or a ledger is missing
        ├── LedgerForeign           a database that is not a Remit ledger, or of a newer version
        ├── LedgerRolledBack        an older copy of the ledger has replaced a newer one
        ├── LedgerInUse             other processes have the ledger open
        └── SqliteUnsafe            the SQLite library has a known bug that loses data
"""

from typing import ClassVar

__all__ = [
    "AccessError",
    "AlgorithmRefused",
    "AttestationMismatch",
    "AudienceMismatch",
    "BodyTooLarge",
    "BrokenChain",
    "CertificateUnusable",
    "CriticalHeaderRefused",
    "DelegationTooDeep",
    "EvidenceError",
    "FieldInvalid",
    "HeadMoved",
    "HeadersTooLarge",
    "HolderMismatch",
    "HomeUnsafe",
    "HookSecretWrong",
    "HostRefused",
    "HttpMalformed",
    "HubTokenRequired",
    "HubUnavailable",
    "InputError",
    "IssuerMismatch",
    "JsonDuplicateMember",
    "JsonLoneSurrogate",
    "JsonNotUtf8",
    "JsonNumberRefused",
    "JsonSyntax",
    "JsonTooDeep",
    "JsonTooLarge",
    "KeyConflict",
    "KeyIdInvalid",
    "KeyInHeaderRefused",
    "KeyMalformed",
    "KeyMaterialError",
    "KeyNotP256",
    "KeyPeriodEnded",
    "KeyUnknown",
    "KeyUseForbidden",
    "KillSwitchOn",
    "LedgerError",
    "LedgerForeign",
    "LedgerInUse",
    "LedgerRolledBack",
    "LedgerUnavailable",
    "LineageUnknown",
    "MediaTypeRefused",
    "MethodRefused",
    "MissionWidened",
    "NotCanonicalizable",
    "OriginRefused",
    "PassportError",
    "PassportExpired",
    "PassportNotYetValid",
    "PassportRevoked",
    "PassportUnregistered",
    "PayloadInvalid",
    "PolicyInvalid",
    "PortInUse",
    "ProofInvalid",
    "ProtectionNotFound",
    "RateLimited",
    "ReceiptNotFound",
    "RemitError",
    "RequestConflict",
    "RequestError",
    "RequestTooSlow",
    "RouteNotFound",
    "ServiceBusy",
    "ServiceError",
    "ServiceRefused",
    "ServiceUnavailable",
    "SessionNotFound",
    "SessionSealed",
    "ShellUnparsed",
    "SignatureInvalid",
    "SignatureNotLowS",
    "SignatureOutOfRange",
    "SqliteUnsafe",
    "StateCorrupt",
    "StateError",
    "StateMissing",
    "TokenEncodingInvalid",
    "TokenError",
    "TokenHeaderInvalid",
    "TokenKindMismatch",
    "TokenMalformed",
    "TokenRequired",
    "TokenTooLarge",
    "TooManyTries",
    "UnknownHeaderRefused",
    "quote",
]


def quote(text: str) -> str:
    """Return untrusted text for a message: escaped, and truncated so that it cannot flood a log."""
    return repr(text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "...")


_SHOWN_LENGTH = 60


class RemitError(Exception):
    """The base class of all errors that Remit raises."""

    code: ClassVar[str] = "remit_error"


class InputError(RemitError, ValueError):
    """Untrusted bytes or values are not acceptable; `place` is a JSON path, or a file."""

    code = "input_error"

    def __init__(self, problem: str, *, place: str = "$") -> None:
        """Say what is wrong and where."""
        super().__init__(f"{place}: {problem}")
        self.problem = problem
        self.place = place


class JsonTooLarge(InputError):
    """More bytes, members, characters or digits than the limit."""

    code = "json_too_large"


class JsonNotUtf8(InputError):
    """The bytes are not UTF-8, or start with a byte order mark."""

    code = "json_not_utf8"


class JsonSyntax(InputError):
    """The text is not JSON."""

    code = "json_syntax"


class JsonDuplicateMember(InputError):
    """An object has a repeated name, which parsers treat differently."""

    code = "json_duplicate_member"


class JsonNumberRefused(InputError):
    """NaN, Infinity, or a number that JSON cannot represent exactly."""

    code = "json_number_refused"


class JsonLoneSurrogate(InputError):
    """A string has a lone surrogate, which has no UTF-8 form."""

    code = "json_lone_surrogate"


class JsonTooDeep(InputError):
    """Arrays and objects are nested deeper than the limit."""

    code = "json_too_deep"


class FieldInvalid(InputError):
    """A member is missing, unknown, or breaks its rule."""

    code = "field_invalid"


class NotCanonicalizable(InputError):
    """A value has no RFC 8785 form, so it has no digest."""

    code = "not_canonicalizable"


class ShellUnparsed(InputError):
    """A command line cannot be parsed as bash does; `word` is the place, `reason` the reason."""

    code = "shell_unparsed"

    def __init__(self, reason: str, word: str) -> None:
        super().__init__(f"{reason} at {quote(word)}" if word else reason)
        self.reason = reason
        self.word = word


class PolicyInvalid(InputError):
    """A policy file cannot be read, does not parse, or does not fit the schema."""

    code = "policy_invalid"


class KeyMaterialError(RemitError):
    """A key cannot be used."""

    code = "key_error"


class KeyMalformed(KeyMaterialError):
    """Not a key in the stated format."""

    code = "key_malformed"


class KeyNotP256(KeyMaterialError):
    """A key of another algorithm or curve."""

    code = "key_not_p256"


class KeyUseForbidden(KeyMaterialError):
    """The key is marked as not for verifying, is private where a public key belongs, or is foreign."""

    code = "key_use_forbidden"


class KeyConflict(KeyMaterialError):
    """Two different trusted keys, or two issuers, under one key id; or a second successor of one key."""

    code = "key_conflict"


class TokenError(RemitError):
    """A signed token is not valid. Its claims cannot be trusted."""

    code = "token_error"


class TokenTooLarge(TokenError):
    """The token is longer than its kind allows."""

    code = "token_too_large"


class TokenMalformed(TokenError):
    """The token is not three parts with a signature of 64 bytes."""

    code = "token_malformed"


class TokenEncodingInvalid(TokenError):
    """A part of the token is not strict base64url, so it would have a second form."""

    code = "token_encoding_invalid"


class TokenHeaderInvalid(TokenError):
    """The header is not a strict JSON object; `fault` is the code of what is wrong with it."""

    code = "token_header_invalid"

    def __init__(self, error: InputError) -> None:
        """Copy the message and the code of `error`."""
        super().__init__(f"header {error}")
        self.fault = error.code


class AlgorithmRefused(TokenError):
    """The algorithm in the header is missing, or not ES256."""

    code = "algorithm_refused"


class TokenKindMismatch(TokenError):
    """The header's `typ` is missing or of another kind."""

    code = "token_kind_mismatch"


class CriticalHeaderRefused(TokenError):
    """The header has `crit`; no extensions are supported."""

    code = "critical_header_refused"


class KeyInHeaderRefused(TokenError):
    """The header has a key, or a URL of one."""

    code = "key_in_header_refused"


class UnknownHeaderRefused(TokenError):
    """The header has an unknown member."""

    code = "unknown_header_refused"


class KeyIdInvalid(TokenError):
    """The header's `kid` is missing or not a well-formed key id."""

    code = "key_id_invalid"


class KeyUnknown(TokenError):
    """The header's `kid` names no trusted key."""

    code = "key_unknown"


class KeyPeriodEnded(TokenError):
    """The period of the key has ended, and the ledger does not show that the token was signed before that."""

    code = "key_period_ended"


class SignatureOutOfRange(TokenError):
    """A half of the signature is zero, or not below the order of the curve."""

    code = "signature_out_of_range"


class SignatureNotLowS(TokenError):
    """The signature is high-S. A token of Remit has one form, because chains hash it."""

    code = "signature_not_low_s"


class SignatureInvalid(TokenError):
    """The signature does not verify."""

    code = "signature_invalid"


class PayloadInvalid(TokenError):
    """The payload is signed, but does not have the form of its kind; `fault` is the code of what is wrong."""

    code = "payload_invalid"

    def __init__(self, error: InputError) -> None:
        """Take over what the strict reader, or the rules of the kind, said."""
        super().__init__(f"payload {error}")
        self.fault = error.code
        self.place = error.place


class IssuerMismatch(TokenError):
    """The claim `iss` is not the issuer that the signing key is trusted for."""

    code = "issuer_mismatch"


class PassportError(RemitError):
    """A passport that verifies does not apply here or now, or cannot be made."""

    code = "passport_error"


class PassportExpired(PassportError):
    """The passport's `exp` has passed."""

    code = "passport_expired"


class PassportNotYetValid(PassportError):
    """The passport's `nbf` or `iat` is in the future."""

    code = "passport_not_yet_valid"


class PassportRevoked(PassportError):
    """The passport was revoked, or one that it was delegated from."""

    code = "passport_revoked"


class PassportUnregistered(PassportError):
    """The passport names this home as its issuer, and the home has not registered it."""

    code = "passport_unregistered"


class LineageUnknown(PassportError):
    """A delegate's passport, but nothing here was delegated to it: no budget was set aside for it."""

    code = "lineage_unknown"


class AudienceMismatch(PassportError):
    """The passport is for another audience."""

    code = "audience_mismatch"


class MissionWidened(PassportError):
    """A delegate requests more than its parent has; `member` is the member that is wider."""

    code = "mission_widened"

    def __init__(self, member: str, problem: str) -> None:
        """Say which member of the mission is wider, and how."""
        super().__init__(f"{member}: {problem}")
        self.member = member


class DelegationTooDeep(PassportError):
    """The lineage is longer than allowed."""

    code = "delegation_too_deep"


class EvidenceError(RemitError):
    """Evidence contradicts itself."""

    code = "evidence_error"


class BrokenChain(EvidenceError):
    """Receipts do not form one chain.

    `index` is the first bad receipt, counted from 0; `fault` is one of `remit.claims.chain.FAULTS` or the
    code of the error that the receipt itself gives.
    """

    code = "chain_broken"

    def __init__(self, index: int, fault: str, problem: str) -> None:
        """Say where the chain breaks and why."""
        super().__init__(f"receipt {index}: {problem}")
        self.index = index
        self.fault = fault


class ProofInvalid(EvidenceError):
    """A Merkle proof does not lead to the expected root."""

    code = "proof_invalid"


class AttestationMismatch(EvidenceError):
    """An attestation does not describe these receipts; `member` is the first claim that differs."""

    code = "attestation_mismatch"

    def __init__(self, member: str) -> None:
        """Name the claim that differs."""
        super().__init__(f"{member} does not agree with the receipts")
        self.member = member


class RequestError(RemitError):
    """A request is well formed, but contradicts the state of the service."""

    code = "request_error"


class SessionNotFound(RequestError):
    """No session has this id."""

    code = "session_not_found"


class ReceiptNotFound(RequestError):
    """No receipt of the session has this id."""

    code = "receipt_not_found"


class ProtectionNotFound(RequestError):
    """This home has no such protection; `remit protect` sets one up."""

    code = "protection_not_found"


class SessionSealed(RequestError):
    """The session was restored from an older copy of the ledger: a further receipt could fork its chain."""

    code = "session_sealed"


class RequestConflict(RequestError):
    """A key or id that makes a request repeatable was used before, for something else."""

    code = "request_conflict"


class KillSwitchOn(RequestError):
    """No session starts until the kill switch is released."""

    code = "kill_switch"


class RateLimited(RequestError):
    """Too many calls in a session that no longer permits anything: this one was not evaluated, only counted."""

    code = "rate_limited"


class HolderMismatch(RequestError):
    """A session or passport is bound to another certificate than the client has shown."""

    code = "holder_mismatch"


class AccessError(RemitError):
    """An HTTP request that is not served."""

    code = "access_error"


class HttpMalformed(AccessError):
    """The bytes are not strict HTTP, so the connection is closed."""

    code = "http_malformed"


class HeadersTooLarge(AccessError):
    """More or longer header fields than the limit."""

    code = "headers_too_large"


class BodyTooLarge(AccessError):
    """The body has more bytes than the limit."""

    code = "body_too_large"


class RequestTooSlow(AccessError):
    """The request did not arrive in time."""

    code = "request_too_slow"


class HostRefused(AccessError):
    """`Host` is missing, repeated, or names another server."""

    code = "host_not_allowed"


class RouteNotFound(AccessError):
    """The path does not exist."""

    code = "not_found"


class MethodRefused(AccessError):
    """The path exists, but not for this method; `allowed` lists the methods."""

    code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        """Name the allowed methods."""
        super().__init__(f"use {allowed}")
        self.allowed = allowed


class MediaTypeRefused(AccessError):
    """The body is not plain JSON: another type, or compressed."""

    code = "unsupported_media_type"


class OriginRefused(AccessError):
    """A page of another origin requests a change. Only browser extensions and pages of this machine may."""

    code = "origin_not_allowed"


class TokenRequired(AccessError):
    """The token that this path requires is missing or wrong."""

    code = "auth_required"


class HubTokenRequired(AccessError):
    """The Hub's token is missing or wrong."""

    code = "hub_auth_required"


class HookSecretWrong(AccessError):
    """An event of an assistant does not show the secret that its session is bound to."""

    code = "hook_secret_wrong"


class TooManyTries(AccessError):
    """Too many wrong tokens in a short time. The right one is still accepted."""

    code = "too_many_tries"


class ServiceBusy(AccessError):
    """More requests or connections at once than the limit."""

    code = "busy"


class ServiceError(RemitError):
    """A Remit service cannot be reached or started."""

    code = "service_error"


class ServiceUnavailable(ServiceError):
    """The service did not answer. Whether it has carried out the request is unknown."""

    code = "service_unavailable"


class HubUnavailable(ServiceError):
    """The Hub did not answer. Whether it has carried out the request is unknown."""

    code = "hub_unavailable"


class ServiceRefused(ServiceError):
    """The service answered with an error; `status`, `error` and `error_code` are its own."""

    code = "service_refused"

    def __init__(self, message: str, *, status: int, error_code: str, error: str = "") -> None:
        """Keep what the service answered."""
        super().__init__(message)
        self.status = status
        self.error = error
        self.error_code = error_code


class PortInUse(ServiceError):
    """Another program listens on the port, or the address does not belong to this machine."""

    code = "port_in_use"


class CertificateUnusable(ServiceError):
    """A certificate, its key or an authority cannot be used for TLS."""

    code = "certificate_unusable"


class LedgerError(RemitError):
    """The ledger cannot do what was requested."""

    code = "ledger_error"


class LedgerUnavailable(LedgerError):
    """The ledger cannot be written. Whether the last attempt was written is unknown, so no decision is given."""

    code = "ledger_unavailable"


class HeadMoved(LedgerError):
    """A chain has grown since its head was read: read it again, sign again."""

    code = "head_moved"


class StateError(RemitError):
    """The state on this machine cannot be used. Nothing was changed."""

    code = "state_error"


class HomeUnsafe(StateError):
    """A folder or file of the home is accessible to others, belongs to another user, or is a link."""

    code = "home_unsafe"


class StateCorrupt(StateError):
    """A file is damaged, or the ledger fails its check."""

    code = "state_corrupt"


class StateMissing(StateError):
    """A key, a ledger or another file is missing. It is not replaced, which would hide the loss."""

    code = "state_missing"


class LedgerForeign(StateError):
    """A database that is not a Remit ledger, or one of a newer version than this one supports."""

    code = "ledger_foreign"


class LedgerRolledBack(StateError):
    """An older copy of the ledger has replaced a newer one."""

    code = "ledger_rolled_back"


class LedgerInUse(StateError):
    """Another process uses the ledger, or needs it exclusively, or a service runs with other options."""

    code = "ledger_in_use"


class SqliteUnsafe(StateError):
    """The SQLite library has a known bug that loses data."""

    code = "sqlite_unsafe"
