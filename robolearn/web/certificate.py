"""Makes the certificate by which a tablet talks to this computer: one per installation and address.

Its key never leaves this computer, nobody has signed it, and it names the address: a browser asks
once whether to trust it, and the fingerprint that is printed here tells that it is the right one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from robolearn.errors import ConfigError

# Browsers refuse certificates that are valid for longer [days].
_DAYS = 397
# A new one is made so long before the old one ends [days].
_SPARE_DAYS = 14


@dataclass(frozen=True, slots=True)
class Certificate:
    """``path``: certificate and key in one file; ``fingerprint``: SHA-256, as browsers show it."""

    path: Path
    fingerprint: str

    def context(self) -> ssl.SSLContext:
        """What a server needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.path)
        return context


def user_data_dir() -> Path:
    """``robolearn`` in the user's data folder: what is lost when it is lost, unlike a cache."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "robolearn"


def certificate_for(
    host: str, folder: Path | None = None, now: dt.datetime | None = None
) -> Certificate:
    """The certificate of this computer at ``host`` (an address or a name); made when there is none,
    or when it ends soon. :class:`ConfigError` where it cannot be kept.
    """
    folder = user_data_dir() / "page" if folder is None else folder
    path = folder / f"{host.replace(':', '_').replace('/', '_')}.pem"
    now = dt.datetime.now(dt.UTC) if now is None else now
    try:
        found = _read(path, now)
        if found is None:
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, _made(host, now))
            found = _read(path, now)
    except OSError as error:
        raise ConfigError(
            f"the page's certificate cannot be kept in {folder}: {error.strerror or error};"
            " set XDG_DATA_HOME to a folder that can be written"
        ) from error
    if found is None:
        raise ConfigError(f"{path} holds no certificate that is valid now; is the clock right?")
    return Certificate(path, found)


def _read(path: Path, now: dt.datetime) -> str | None:
    """Fingerprint of the certificate, None where there is none, or not for long."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    if not path.is_file():
        return None
    # Others may have been able to read the key.
    if path.stat().st_mode & 0o077:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        return None
    spare = dt.timedelta(days=_SPARE_DAYS)
    begun = certificate.not_valid_before_utc <= now
    if not begun or certificate.not_valid_after_utc - spare < now:
        return None
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _made(host: str, now: dt.datetime) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"robolearn on {host}"[:64])])
    serves = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS - 1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        # It vouches for nobody else.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(serves, critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + secret


def _write(path: Path, data: bytes) -> None:
    # A file of its own that only the user can read, then renamed: two programs may start at once.
    fd, name = tempfile.mkstemp(dir=path.parent, suffix=".pem")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
