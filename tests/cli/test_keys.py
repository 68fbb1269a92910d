"""`remit keys`: a list, a change of key, and public keys for others."""

import hashlib
import json
import stat
from pathlib import Path

import apsw
import jwt
import pytest

from remit.cli.errors import DONE, STATE, USAGE
from tests.cli.running import ASKED, issued, lines, run, started


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


# Distrust


def _kids(place: Path) -> list[dict[str, object]]:
    keys: list[dict[str, object]] = json.loads(run(place, "keys", "list", "--json").stdout)["keys"]
    return keys


def test_the_key_that_signs_is_distrusted_after_it_has_handed_over(place: Path) -> None:
    kid = str(_kids(place)[0]["kid"])
    done = run(place, "keys", "distrust", kid, "--from", "1970-01-02T00:00:00Z", "--yes")
    assert done.exit_code == DONE, done.output
    assert lines(done.stdout) == [
        "distrusted   <kid> from <date>, after receipt 0 of the ledger",
        "signing      <kid> (the signing key was rotated first)",
        "revoked      1 passports; 0 sessions were active",
        "next         remit ledger check lists what the key has signed later",
    ]
    listed = _kids(place)
    assert [(key["state"], key.get("distrusted_from")) for key in listed] == [("distrusted", 86400), ("signing", None)]
    assert lines(run(place, "keys", "list").stdout) == [
        "<kid>  distrusted since <date>, distrusted from <date>",
        "<kid>  signing  since <date>",
    ]


def test_a_distrust_for_programs_says_all_that_it_meant(place: Path) -> None:
    session_id = started(place)
    kid = str(_kids(place)[0]["kid"])
    run(place, "keys", "rotate")
    told = json.loads(
        run(place, "keys", "distrust", kid, "--from", "1970-01-02T00:00:00+00:00", "--yes", "--json").stdout
    )
    assert told.keys() == {
        "ok", "distrusted", "from", "rotated", "signing", "position", "revoked_passports", "closed_sessions",
    }  # fmt: skip
    assert (told["ok"], told["rotated"], told["distrusted"], told["closed_sessions"]) == (True, False, kid, 1)
    assert session_id in told["revoked_passports"]
    assert told["position"] == {"receipts": 0, "passports": 0, "sessions": 0}
    report = json.loads(run(place, "ledger", "check", "--json").stdout)
    assert {finding["fault"] for finding in report["findings"]} == {"key_distrusted"}
    assert report["found"] == 2


def test_a_distrust_from_now_refuses_nothing_that_is_there(place: Path) -> None:
    session_id = started(place)
    kid = str(_kids(place)[0]["kid"])
    told = json.loads(run(place, "keys", "distrust", kid, "--from", "now", "--yes", "--json").stdout)
    assert (told["revoked_passports"], told["closed_sessions"], told["rotated"]) == ([], 0, True)
    assert run(place, "ledger", "check").exit_code == DONE
    assert session_id not in str(told)


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ("tomorrow", "must be a time as in"),
        ("2026-13-01T00:00:00Z", "must be a time as in"),
        ("2026-01-01T00:00:00", "must have a time zone"),
        ("9999-01-01T00:00:00Z", "must not be in the future"),
        ("", "must be a time as in"),
    ],
)
def test_a_time_that_cannot_be_is_refused_and_nothing_changes(place: Path, since: str, said: str) -> None:
    before = _kids(place)
    refused = run(place, "keys", "distrust", str(before[0]["kid"]), "--from", since, "--yes")
    assert (refused.exit_code, refused.stdout) == (USAGE, "")
    assert said in refused.stderr
    assert _kids(place) == before


def test_a_key_that_nobody_knows_is_refused(place: Path) -> None:
    before = _kids(place)
    refused = run(place, "keys", "distrust", "nobody", "--from", "now", "--yes")
    assert refused.exit_code == USAGE
    assert "no key of this home" in refused.stderr
    assert _kids(place) == before
    assert [path.stem for path in (place / "keys").glob("*.pem")] == [before[0]["kid"]]


def test_a_key_id_that_begins_with_a_dash_is_no_option(place: Path) -> None:
    refused = run(place, "keys", "distrust", "-_" + "A" * 41, "--from", "now", "--yes")
    assert "no key of this home" in refused.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_where_nobody_can_be_asked_it_must_be_said_that_it_is_meant(place: Path, more: list[str]) -> None:
    before = _kids(place)
    refused = run(place, "keys", "distrust", str(before[0]["kid"]), "--from", "now", *more)
    assert refused.exit_code == USAGE
    assert "--yes" in refused.output
    assert _kids(place) == before


def test_an_export_still_holds_a_distrusted_key_and_says_so_beside_it(place: Path) -> None:
    kid = str(_kids(place)[0]["kid"])
    run(place, "keys", "distrust", kid, "--from", "now", "--yes")
    exported = run(place, "keys", "export")
    assert [key["kid"] for key in json.loads(exported.stdout)["keys"]] == [key["kid"] for key in _kids(place)]
    assert f"{kid} is distrusted from" in exported.stderr


def test_a_passport_is_registered_before_it_is_printed(place: Path) -> None:
    from remit.ledger.embedded import open_embedded_ledger

    told = json.loads(run(place, "issue", *ASKED, "--json").stdout)
    embedded = open_embedded_ledger(place)
    record = embedded.reader.registered(told["claims"]["jti"])
    embedded.close()
    assert record is not None
    assert record.hash == hashlib.sha256(told["token"].encode()).hexdigest()


def test_a_passport_that_cannot_be_registered_is_not_printed(place: Path) -> None:
    """Another program holds the ledger, so nothing can be written."""
    holding = apsw.Connection(str(place / "ledger.db"))
    holding.execute("BEGIN IMMEDIATE")
    refused = run(place, "issue", *ASKED)
    holding.execute("ROLLBACK")
    holding.close()
    assert refused.exit_code != DONE
    assert refused.stdout == ""
