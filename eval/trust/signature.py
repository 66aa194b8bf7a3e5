"""Signs digests with Ed25519 keys (RFC 8032), and checks such signatures.

A key is made with ``openssl genpkey -algorithm ed25519 -out key.pem``. What is signed is a context
and the digest, so that a signature of this program's cannot stand for anything else.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.errors import CertificateError, ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_CONTEXT = b"robolearn certificate\n"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Signature:
    """Who signed (public key, 64 hex digits) and the signature (128)."""

    key: str
    value: str


def sign(digest: str, key_file: Path) -> Signature:
    """Sign a digest with the private key in a PEM file; :class:`ConfigError` for another file."""
    from cryptography.hazmat.primitives import serialization

    private = _private_key(key_file)
    public = private.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    return Signature(public.hex(), private.sign(_CONTEXT + digest.encode()).hex())


def key_notes(key_file: Path) -> tuple[str, ...]:
    """Says where others than the owner of a private key can sign with it."""
    mode = stat.S_IMODE(key_file.stat().st_mode)
    if not mode & 0o077:
        return ()
    said = (
        f"the private key '{key_file}' is open to others than its owner (mode {mode:o}): whoever"
        f" reads it signs as you do; chmod 600 '{key_file}', or make another"
    )
    return (said,)


def require_signed(digest: str, signature: Signature, where: str) -> None:
    """:class:`CertificateError` where ``signature`` is not one of this digest by its key."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise MissingDependencyError(
            f"'{where}' is signed; checking that needs the package 'cryptography'"
        ) from error
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key(signature.key))
        key.verify(bytes.fromhex(signature.value), _CONTEXT + digest.encode())
    except (InvalidSignature, ValueError, ConfigError) as error:
        raise CertificateError(
            f"'{where}': the signature is not one of {signature.key[:16]}... over this text"
        ) from error


def public_key(text: str) -> bytes:
    """The bytes of a public key as it is written; :class:`ConfigError` for what is none."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != _KEY_BYTES or text != found.hex():
        raise ConfigError(
            f"a public key has {2 * _KEY_BYTES} hexadecimal digits in lower case, got '{text[:80]}'"
        )
    return found


def _private_key(key_file: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise MissingDependencyError("signing needs the package 'cryptography'") from error
    try:
        found = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"key '{key_file}': {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"key '{key_file}' is no private key in PEM without a password: {error}; make one with"
            " 'openssl genpkey -algorithm ed25519'"
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError(
            f"key '{key_file}': expected an Ed25519 key, got {type(found).__name__}; make one with"
            " 'openssl genpkey -algorithm ed25519'"
        )
    return found
