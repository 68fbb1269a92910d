"""The secrets of the hooks of a protection, derived from the token of the Hub. They are replaced together with it."""

import hmac

from remit.claims.canonical import encode_base64url


def hook_token(token: str, protection: str) -> str:
    """Return the token for the hooks of a protection: an HMAC keyed with the Hub's token. It gives no other access."""
    return _derive(token, f"remit hooks {protection}")


def proof_key(token: str, protection: str) -> str:
    """Return the key with which the Hub authenticates its answers to the hooks of a protection. It is never sent."""
    return _derive(token, f"remit proof {protection}")


def shared_hook_token(token: str) -> str:
    """Return the token that the first release has given to the hooks of all protections."""
    return _derive(token, "remit hooks")


def _derive(token: str, text: str) -> str:
    return encode_base64url(hmac.digest(token.encode("utf-8"), text.encode("utf-8"), "sha256"))
