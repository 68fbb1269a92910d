"""`remit keys`: a list, a change of key, and public keys for others."""

import json
import stat
from pathlib import Path

import jwt
import pytest

from remit.cli.errors import DONE, STATE, USAGE
from tests.cli.running import issued, lines, run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    issued(tmp_path / "home")
    return tmp_path / "home"


def test_a_key_hands_over_and_both_are_listed(place: Path) -> None:
    assert lines(run(place, "keys", "list").stdout) == ["<kid>  signing  since <date>"]
    before = json.loads(run(place, "keys", "list", "--json").stdout)["keys"]
    assert lines(run(place, "keys", "rotate").stdout) == [
        "signing      <kid>",
        "retired      <kid>",
        "next         remit keys export",
    ]
    after = json.loads(run(place, "keys", "list", "--json").stdout)["keys"]
    assert [key["state"] for key in after] == ["retired", "signing"]
    assert after[0]["kid"] == before[0]["kid"]
    assert [path.stem for path in (place / "keys").glob("*.pem")] == [after[1]["kid"]]


def test_a_rotation_for_programs_names_both_keys(place: Path) -> None:
    (before,) = json.loads(run(place, "keys", "list", "--json").stdout)["keys"]
    rotated = json.loads(run(place, "keys", "rotate", "--json").stdout)
    assert (rotated["ok"], rotated["retired"]) == (True, before["kid"])


def test_tokens_from_before_and_after_a_rotation_verify_with_the_export(place: Path) -> None:
    tokens = [issued(place)]
    run(place, "keys", "rotate")
    tokens.append(issued(place))
    exported = json.loads(run(place, "keys", "export").stdout)
    assert [key["kid"] for key in exported["keys"]] == [jwt.get_unverified_header(token)["kid"] for token in tokens]
    for token, key in zip(tokens, jwt.PyJWKSet.from_dict(exported).keys, strict=True):
        jwt.decode(token, key, algorithms=["ES256"], audience="remit")


@pytest.mark.parametrize("form", ["jwks", "pem"])
def test_no_form_of_the_export_shows_a_private_key(place: Path, form: str) -> None:
    run(place, "keys", "rotate")
    for more in ([], ["--json"]):
        shown = run(place, "keys", "export", "--format", form, *more).stdout
        assert "PRIVATE" not in shown
        assert '"d"' not in shown
    pems = run(place, "keys", "export", "--format", "pem").stdout
    assert pems.count("BEGIN PUBLIC KEY") == 2
    assert json.loads(run(place, "keys", "export", "--format", "pem", "--json").stdout)["pem"] == pems


def test_an_export_to_a_file_never_overwrites(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.jwks"
    written = run(place, "keys", "export", "--out", str(file))
    assert written.stdout.splitlines() == [f"file         {file}", "keys         1"]
    assert file.read_text(encoding="ascii") == run(place, "keys", "export").stdout
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0
    for bad in (file, tmp_path / "nowhere" / "x"):
        refused = run(place, "keys", "export", "--out", str(bad), "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (USAGE, "field_invalid")


@pytest.mark.parametrize("command", ["list", "rotate", "export"])
def test_without_a_ledger_there_are_no_keys_and_none_are_made(tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    for name in ("nowhere", "empty"):
        refused = run(tmp_path / name, "keys", command, "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["error_code"]) == (STATE, "state_missing")
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "empty" / "ledger.db").exists()


def test_keys_change_while_a_service_has_the_ledger_open(place: Path) -> None:
    from tests.ledger.service import Service

    service = Service(place)
    session_id = service.start()
    service.call(session_id)
    assert run(place, "keys", "rotate").exit_code == DONE
    receipt = service.call(session_id)
    service.close()
    signing = json.loads(run(place, "keys", "list", "--json").stdout)["keys"][-1]["kid"]
    assert receipt.claims.verifier_id == f"remit:{signing}"
