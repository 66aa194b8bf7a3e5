import datetime as dt
import ssl
import stat

import pytest
from cryptography import x509

from robolearn.errors import ConfigError
from robolearn.web.certificate import certificate_for


def test_one_per_address_and_kept(tmp_path):
    first = certificate_for("127.0.0.2", tmp_path)
    assert first == certificate_for("127.0.0.2", tmp_path)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert len(first.fingerprint) == 32 * 3 - 1
    other = certificate_for("robot-lab.local", tmp_path)
    assert other.fingerprint != first.fingerprint
    found = x509.load_pem_x509_certificate(first.path.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.2"]
    span = found.not_valid_after_utc - found.not_valid_before_utc
    assert span <= dt.timedelta(days=397)
    assert isinstance(first.context(), ssl.SSLContext)


@pytest.mark.parametrize("spoil", ["readable", "old", "of tomorrow", "broken"])
def test_one_that_cannot_be_trusted_is_made_anew(tmp_path, spoil):
    first, now = certificate_for("127.0.0.2", tmp_path), dt.datetime.now(dt.UTC)
    if spoil == "readable":
        first.path.chmod(0o644)
    elif spoil == "broken":
        first.path.write_text("no certificate")
    elif spoil == "old":
        now += dt.timedelta(days=390)
    else:
        now -= dt.timedelta(days=3)
    assert certificate_for("127.0.0.2", tmp_path, now).fingerprint != first.fingerprint


def test_a_folder_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="XDG_DATA_HOME"):
        certificate_for("127.0.0.2", tmp_path / "file" / "page")
