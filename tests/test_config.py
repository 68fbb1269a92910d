"""Where the home lies, what its settings are, and that nobody else reads the environment."""

import ast
import json
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import remit
from remit.config import (
    CONFIG_FILE,
    HOME_VARIABLE,
    HUB_HOSTS,
    HUB_URL,
    TOKEN_NAMES,
    HomeSettings,
    check_hub_host,
    ensure_token,
    expand_user_path,
    home_path,
    load_settings,
    parse_hub_url,
    rotate_token,
    set_hub_url,
    user_config,
)
from remit.errors import FieldInvalid, HomeUnsafe, StateCorrupt, StateMissing
from remit.ledger.home import Home, open_home


def test_the_option_comes_first_then_the_variable_then_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv(HOME_VARIABLE, "/srv/named")
    assert home_path("/srv/asked") == Path("/srv/asked")
    assert home_path(None) == home_path("") == Path("/srv/named")
    monkeypatch.setenv(HOME_VARIABLE, "")
    assert home_path(None) == Path("/home/someone/.remit")
    monkeypatch.delenv(HOME_VARIABLE)
    assert home_path(None) == Path("/home/someone/.remit")


def test_a_tilde_is_the_users_home_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv(HOME_VARIABLE, "~/elsewhere")
    assert home_path(None) == Path("/home/someone/elsewhere")


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateMissing) as refused:
        home_path("~nobody-of-this-name/remit")
    assert refused.value.code == "state_missing"


def test_nobody_else_reads_the_environment() -> None:
    source = Path(remit.__file__).parent
    names = {"environ", "environb", "getenv", "expanduser", "expandvars"}
    readers = {
        path.name
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    assert readers == {"config.py"}


def test_a_tilde_in_a_path_is_the_users_home_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert [expand_user_path(text) for text in ("~", "~/a/", "/b/~", "c")] == [
        "/home/someone",
        "/home/someone/a/",
        "/b/~",
        "c",
    ]
    with pytest.raises(FieldInvalid) as refused:
        expand_user_path("~nobody-of-this-name/a")
    assert refused.value.code == "field_invalid"


def test_settings_of_a_user_lie_where_the_variable_says_or_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    usual = Path("/home/someone/.config")
    for named, folder in {"/etc/mine": Path("/etc/mine"), "mine": usual, "": usual}.items():
        monkeypatch.setenv("XDG_CONFIG_HOME", named)
        assert user_config() == folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def test_a_home_without_a_file_has_the_first_settings(home: Home) -> None:
    assert load_settings(home) == HomeSettings(None, None, None, HUB_URL)
    assert home.names() == []


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_token_is_made_once_renewed_on_demand_and_shown_by_nothing_else(home: Home, name: str) -> None:
    made = ensure_token(home, name)  # type: ignore[arg-type]
    assert ensure_token(home, name) == made  # type: ignore[arg-type]
    renewed = rotate_token(home, name)  # type: ignore[arg-type]
    assert renewed != made
    assert getattr(load_settings(home), f"{name}_token") == renewed
    assert renewed not in repr(load_settings(home))
    assert len(renewed) >= 43


def test_the_file_is_its_owners_alone_and_keeps_what_is_not_known_here(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "home" / CONFIG_FILE
    home.create(CONFIG_FILE, b'{"hub_url": "http://127.0.0.1:8765", "options": {"a": [1, 2.5, null]}}')
    ensure_token(home, "admin")
    rotate_token(home, "proxy")
    members = json.loads(file.read_bytes())
    assert set(members) == {"hub_url", "options", "admin_token", "proxy_token"}
    assert members["options"] == {"a": [1, 2.5, None]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b'{"admin_token": 1}',
    b'{"admin_token": null}',
    b'{"admin_token": "short"}',
    b'{"proxy_token": "' + b"x" * 42 + b'!"}',
    b'{"hub_token": "short"}',
    b'{"hub_url": 8765}',
    b'{"hub_url": "http://example.com:80"}',
    b'{"a": 1, "a": 2}',
    b"\xff",
    b" " * 300_000,
]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:30]))
def test_a_damaged_file_is_named_and_stays_as_it_is(home: Home, data: bytes) -> None:
    home.create(CONFIG_FILE, data)
    for attempt in (load_settings, lambda it: ensure_token(it, "admin"), lambda it: rotate_token(it, "admin")):
        with pytest.raises(StateCorrupt) as refused:
            attempt(home)
        assert refused.value.code == "state_corrupt"
        assert CONFIG_FILE in str(refused.value)
    assert home.read(CONFIG_FILE, max_bytes=1_000_000) == data


def test_a_damaged_file_shows_no_token_in_its_error(home: Home) -> None:
    home.create(CONFIG_FILE, b'{"admin_token": "this-is-a-secret!", "proxy_token": "this-is-a-secret"}')
    with pytest.raises(StateCorrupt) as refused:
        load_settings(home)
    assert "secret" not in str(refused.value)


def test_a_file_that_others_can_read_is_refused(home: Home, tmp_path: Path) -> None:
    ensure_token(home, "admin")
    (tmp_path / "home" / CONFIG_FILE).chmod(0o644)
    with pytest.raises(HomeUnsafe) as refused:
        ensure_token(home, "admin")
    assert refused.value.code == "home_unsafe"


def test_a_name_that_no_token_has_is_refused(home: Home) -> None:
    with pytest.raises(FieldInvalid) as refused:
        ensure_token(home, "other")  # type: ignore[arg-type]
    assert refused.value.code == "field_invalid"


def test_all_who_ask_at_once_get_the_same_token(home: Home) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = [*TOKEN_NAMES] * 8
        tokens = list(pool.map(lambda name: ensure_token(home, name), names))
    assert len(set(tokens)) == len(TOKEN_NAMES)


def test_an_address_that_was_kept_by_name_is_read_by_number(home: Home) -> None:
    home.create(CONFIG_FILE, b'{"hub_url": "http://localhost:1"}')
    assert load_settings(home).hub_url == "http://127.0.0.1:1"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8765", "http://localhost:1", "http://[::1]:65535"])
def test_the_address_of_the_hub_is_kept_and_everything_else_with_it(home: Home, tmp_path: Path, url: str) -> None:
    home.create(CONFIG_FILE, b'{"options": {"a": [1, 2.5, null]}}')
    token = ensure_token(home, "hub")
    set_hub_url(home, url)
    settings = load_settings(home)
    # `localhost` may be an address at which another user answers.
    assert (settings.hub_url, settings.hub_token) == (url.replace("localhost", "127.0.0.1"), token)
    assert json.loads((tmp_path / "home" / CONFIG_FILE).read_bytes())["options"] == {"a": [1, 2.5, None]}
    assert stat.S_IMODE((tmp_path / "home" / CONFIG_FILE).stat().st_mode) == 0o600
    host, port = parse_hub_url(url)
    assert host in HUB_HOSTS
    assert url.endswith(f":{port}")


ELSEWHERE = [
    "", "127.0.0.1:8765", "http://127.0.0.1", "http://127.0.0.1:0", "http://127.0.0.1:65536", "http://127.0.0.1:80/",
    "http://127.0.0.1:80\n", "http://127.0.0.1:80?a", "http://me@127.0.0.1:80", "https://127.0.0.1:80",
    "http://0.0.0.0:80", "http://127.0.0.2:80", "http://127.1:80", "http://2130706433:80", "http://::1:80",
    "http://localhost.example.com:80", "http://LOCALHOST:80", "http://example.com:80",
]  # fmt: skip


@pytest.mark.parametrize("url", ELSEWHERE)
def test_an_address_that_is_not_of_this_machine_is_no_address_of_the_hub(home: Home, url: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        set_hub_url(home, url)
    assert (refused.value.code, refused.value.place) == ("field_invalid", "$.hub_url")
    assert home.names() == []


def test_the_hub_listens_on_this_machine_only() -> None:
    for host in HUB_HOSTS:
        check_hub_host(host, "--host")
    with pytest.raises(FieldInvalid) as refused:
        check_hub_host("0.0.0.0", "--host")
    assert (refused.value.code, refused.value.place) == ("field_invalid", "--host")
