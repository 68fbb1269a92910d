"""Certificates of every kind, right and wrong, as files that openssl and Python can load."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

CLIENT: Final = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVER: Final = (ExtendedKeyUsageOID.SERVER_AUTH,)
ANY: Final = (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)
ADDRESS: Final = "127.0.0.1"
DAY: Final = timedelta(days=1)

# What a server with mutual TLS must refuse, each made by `Workshop.wrong_client`.
WRONG_CLIENTS: Final = (
    "expired", "not yet valid", "of another authority", "of a name that only sounds the same", "for servers only",
    "for any use", "without a use", "self-signed", "signed by a client",
)  # fmt: skip


def program(name: str) -> str:
    """Return where a program is; a test that needs it is skipped where it is not installed."""
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


class Pair(NamedTuple):
    """A certificate, its key, and the files they are in."""

    cert: x509.Certificate
    key: Key
    cert_path: str
    key_path: str

    @property
    def der(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.DER)


class Workshop:
    """Makes certificates into files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = 0

    def authority(self, name: str = "An authority", *, strict: bool = True, **changes: object) -> Pair:
        """Return an authority; one that is not strict is such as `openssl req -x509` makes."""
        return self.pair(name, issuer=None, is_authority=True, strict=strict, **changes)  # type: ignore[arg-type]

    def server(self, authority: Pair, **changes: object) -> Pair:
        return self.pair("A server", issuer=authority, uses=SERVER, names=(ADDRESS, "localhost"), **changes)  # type: ignore[arg-type]

    def client(self, authority: Pair, **changes: object) -> Pair:
        return self.pair("A client", issuer=authority, uses=CLIENT, **changes)  # type: ignore[arg-type]

    def wrong_client(self, kind: str, authority: Pair) -> Pair:
        """Return a client's certificate that is wrong in this one way."""
        now = datetime.now(UTC)
        own = authority.cert.subject.rfc4514_string().removeprefix("CN=")
        changes: dict[str, dict[str, object]] = {
            "expired": {"since": now - 2 * DAY, "until": now - timedelta(seconds=1)},
            "not yet valid": {"since": now + DAY, "until": now + 2 * DAY},
            "of another authority": {"issuer": self.authority("Another authority")},
            "of a name that only sounds the same": {"issuer": self.authority(own)},
            "for servers only": {"uses": SERVER},
            "for any use": {"uses": ANY},
            "without a use": {"uses": ()},
            "self-signed": {"issuer": None},
            "signed by a client": {"issuer": self.client(authority)},
        }
        return self.pair("A client", **{"issuer": authority, "uses": CLIENT, **changes[kind]})  # type: ignore[arg-type]

    def pair(
        self,
        name: str,
        *,
        issuer: Pair | None,
        uses: Sequence[x509.ObjectIdentifier] = (),
        names: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        key: Key | None = None,
        is_authority: bool = False,
        strict: bool = True,
        password: bytes | None = None,
    ) -> Pair:
        """Return a certificate as described, in two new files."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(
            issuer_name=issuer.cert.subject if issuer else subject,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=since or now - DAY,
            not_valid_after=until or now + DAY,
        )
        signer = issuer.key if issuer else key
        for extension in _extensions(key, signer, uses, names, is_authority=is_authority, strict=strict):
            critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            builder = builder.add_extension(extension, critical=critical)
        return self._filed(builder.sign(signer, hashes.SHA256()), key, password)

    def file(self, data: bytes, ending: str = "pem") -> str:
        self.made += 1
        path = self.folder / f"{self.made:03d}.{ending}"
        path.write_bytes(data)
        return str(path)

    def _filed(self, cert: x509.Certificate, key: Key, password: bytes | None) -> Pair:
        sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        encoding = serialization.Encoding.PEM
        key_pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, sealed)
        return Pair(cert, key, self.file(cert.public_bytes(encoding)), self.file(key_pem, "key.pem"))


def rsa_key() -> Key:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _extensions(
    key: Key,
    signer: Key,
    uses: Sequence[x509.ObjectIdentifier],
    names: Sequence[str],
    *,
    is_authority: bool,
    strict: bool,
) -> list[x509.ExtensionType]:
    found: list[x509.ExtensionType] = [
        x509.BasicConstraints(ca=is_authority, path_length=None),
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
    ]
    if strict:
        found.append(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()))
        found.append(_key_usage(is_authority=is_authority, is_rsa=isinstance(key, rsa.RSAPrivateKey)))
    if uses:
        found.append(x509.ExtendedKeyUsage(uses))
    if names:
        found.append(x509.SubjectAlternativeName([_alternative(name) for name in names]))
    return found


def _key_usage(*, is_authority: bool, is_rsa: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_encipherment=is_rsa and not is_authority,  # what suites without forward secrecy need
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
