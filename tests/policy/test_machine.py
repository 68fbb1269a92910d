"""State of the machine that is not in files: a passport for folders does not reach it, and an entry of its own does."""

from collections.abc import Iterator

import pytest

from remit.claims.mission import MACHINE_KINDS
from remit.policy.call import Effect
from remit.policy.machine import machine_resource, split_machine
from remit.policy.scope import build_scope, covers, escape_entry
from remit.policy.shell.tables import Program, known_program, program_names
from tests.policy.judging import BASE, STANDING, applied, command, judged, mission, touched

# A command, and the state of the machine that it uses or changes.
MANAGES = {
    "dropdb x": "db://x",
    "createdb -O me x": "db://x",
    "dropdb -h localhost --if-exists x": "db://x",
    "vacuumdb -a": "db://*",
    "createuser me": "db://*",
    "psql -d app_dev -c 'drop table x'": "db://app_dev",
    "psql app_dev -c 'select 1'": "db://app_dev",
    "psql -c 'drop table x'": "db://*",
    "echo 'drop table x' | psql app_dev": "db://app_dev",
    "psql postgres://u@localhost:5432/app_dev -c 'select 1'": "db://app_dev",
    "psql -d app_dev -c 'drop database other'": "db://*",
    "pg_dump app_dev": "db://app_dev",
    "pg_dumpall": "db://*",
    "pg_restore -d app_dev x.dump": "db://app_dev",
    "mysql -e 'drop table x' app_dev": "db://app_dev",
    "mysql -D app_dev -e 'select * from other.users'": "db://*",
    "mysql app_dev -e 'use other; drop table x'": "db://*",
    "mysqldump app_dev users": "db://app_dev",
    "mysqldump --all-databases": "db://*",
    "mysqladmin drop x": "db://*",
    "redis-cli flushall": "db://redis",
    "mongosh app_dev --eval 'db.dropDatabase()'": "db://app_dev",
    "mongodump --db app_dev --out dump": "db://app_dev",
    "docker system prune -af": "container://*",
    "docker volume rm x": "container://volume/x",
    "docker volume prune -f": "container://volume",
    "docker network create x": "container://network/x",
    "docker container prune": "container://*",
    "docker image prune -a": "container://image",
    "docker rmi app:dev": "container://image/app:dev",
    "docker stop app": "container://app",
    "podman rm -f app": "container://app",
    "docker rm -f -v app": "container://app",
    "docker kill -s KILL app": "container://app",
    "docker exec -it app sh -c 'rm -rf /data'": "container://app",
    "docker run --rm alpine ls": "container://image/alpine",
    "docker run --name app alpine": "container://app",
    "docker run -v data:/x alpine": "container://volume/data",
    "docker run --mount type=volume,src=data,dst=/x alpine": "container://volume/data",
    "docker cp app:/etc/x .": "container://app",
    "docker build -t app:dev .": "container://image/app:dev",
    "docker build .": "container://image",
    "docker pull alpine": "container://image/alpine",
    "docker load -i x.tar": "container://image",
    "docker compose up -d": "container://compose",
    "docker compose -p other down -v": "container://compose",
    "docker-compose down": "container://compose",
    "docker compose exec web ls": "container://compose",
    "kubectl delete pod x": "container://kubernetes",
    "pip uninstall -y x": "package://pip/x",
    "pip install Six==1.2": "package://pip/six",
    "pip install --user -r requirements.txt": "package://pip",
    "python3 -m pip uninstall -y x": "package://pip/x",
    "pip uninstall -y -r requirements.txt": "package://pip",
    "pipx install black": "package://pipx/black",
    "npm uninstall -g x": "package://npm/x",
    "npm i --global @a/b@1": "package://npm/@a/b",
    "npm update -g": "package://npm",
    "pnpm add -g x": "package://npm/x",
    "cargo install ripgrep": "package://cargo/ripgrep",
    "gem uninstall x": "package://gem/x",
    "apt-get remove -y jq": "package://apt/jq",
    "apt-get install g++": "package://apt/g++",
    "apt update": "package://apt",
    "brew install hashicorp/tap/terraform": "package://brew/hashicorp/tap/terraform",
    "brew upgrade": "package://brew",
    "dnf remove -y jq": "package://dnf/jq",
    "apk add jq": "package://apk/jq",
    "systemctl stop nginx": "service://nginx",
    "systemctl --user restart app.service": "service://app.service",
    "systemctl daemon-reload": "service://*",
    "service nginx restart": "service://nginx",
    "brew services stop redis": "service://redis",
    "launchctl kickstart -k gui/501/x": "service://*",
    "crontab -r": "service://cron",
    "crontab x.cron": "service://cron",
    "kill 4242": "process://4242",
    "kill -9 -- -4242": "process://-4242",
    "kill -9 -1": "process://*",
    "kill $(cat x.pid)": "process://*",
    "kill $PPID": "process://*",
    "kill -s KILL 04242": "process://4242",
    "pgrep -f vite | xargs kill": "process://*",
    "pkill node": "process://node",
    "pkill -9 -f 'node .*server'": "process://node .*server",
    "pkill -u me": "process://*",
    "killall -9 node": "process://node",
    "fuser -k 3000/tcp": "process://*",
    "renice -n 5 -p 4242": "process://4242",
}
# What is done every day, and changes nothing but the project.
LOOKS = [
    "docker ps", "docker ps -a", "docker images", "docker logs --tail 5 app",
    "docker inspect -f '{{.State.Status}}' app", "docker volume ls",
    "docker network inspect x", "docker system df", "docker image ls", "docker compose ps", "docker compose logs web",
    "docker compose config -q", "docker --version", "podman ps", "psql --version", "psql -l", "mysql --version",
    "redis-cli --version", "pg_isready", "dropdb --help", "pip list", "pip show six",
    "npm uninstall x", "apt list --installed", "apt-get install -s jq", "brew list", "brew services list",
    "cargo install --list", "systemctl status nginx || true", "systemctl is-active nginx", "service --status-all",
    "launchctl list", "crontab -l", "fuser 3000/tcp", "lsof -ti:3000", "pgrep -f vite", "pkill --version",
    "kill -l", "kill -l 9", "kill -0 4242", "kill -s 0 4242", 'kill -0 "$pid"', "kill -0 $(pgrep -f vite)",
    "sqlite3 app.db 'drop table x'",
]  # fmt: skip
JOBS = [
    "kill %1", "kill %%", "kill -9 %1 %2", "kill %vite", "sleep 9 & kill $!", 'sleep 9 & kill "$!"',
    "sleep 9 & kill ${!}",
    "sleep 9 & pid=$!; kill $pid", 'sleep 9 & pid=$!; sleep 1; kill -TERM "$pid"', "sleep 9 & p=$!; kill -- -$p",
    "sleep 9 & a=$!; sleep 8 & b=$!; kill $a $b", "kill $(jobs -p)", "trap 'kill $(jobs -p)' EXIT; sleep 9 &",
    "f() { sleep 9 & local p=1; kill $!; }; f", "sleep 9 & p=$!; if true; then kill ${p}; fi",
]  # fmt: skip


def managed(text: str) -> set[str]:
    """Return the state of the machine that a command uses or changes."""
    return {effect.resource for effect in command(text).action.effects if effect.verb == "manage"}


@pytest.mark.parametrize(("text", "resource"), MANAGES.items())
def test_state_of_the_machine_is_outside_a_scope_of_folders(text: str, resource: str) -> None:
    decision = command(text)
    assert f"manage {resource}" in touched(decision)
    assert not decision.permits
    assert "state_change" in decision.action.side_effects


@pytest.mark.parametrize("text", LOOKS)
def test_a_look_is_no_change(text: str) -> None:
    assert managed(text) == set()


@pytest.mark.parametrize(
    "text", [text for text in LOOKS if not text.startswith(("systemctl status", "cargo", "apt-get"))]
)
def test_a_look_is_permitted_in_a_scope_of_folders(text: str) -> None:
    assert command(text).permits


@pytest.mark.parametrize("text", JOBS)
def test_a_script_may_stop_what_it_has_started_itself(text: str) -> None:
    decision = command(text)
    assert decision.permits
    assert decision.action.side_effects == {"state_change"}


@pytest.mark.parametrize(
    "text",
    [
        "pid=4242; kill $pid", "sleep 9 & pid=$!; pid=$(cat x); kill $pid", "kill $$", "kill $pid", "kill $RANDOM",
        "sleep 9 & pid=$!; if true; then pid=$X; fi; kill $pid", "jobs() { echo 1; }; kill $(jobs -p)",
        "sleep 9 & pid=$!; kill $((pid + 1))", "sleep 9 & pid=$!; kill $pid$pid", "sleep 9 & pid=$!; kill 1$pid",
        "sleep 9 & pid=$!; bash -c 'kill $pid'", "sleep 9 & pid=$!; for pid in 1 2; do kill $pid; done",
        "kill -0 $X 4242", "kill -0 -s KILL 4242", 'kill -0 "$X" 4242', "pgrep() { cat x; }; kill -0 $(pgrep -f x)",
        "kill -0 $(pgrep -a x)", "kill -0 $(pgrep -fl x)", "kill -0 $(pgrep -f x; cat y)", "kill -s $X %1",
    ],
)  # fmt: skip
def test_every_other_process_is_one_of_the_machine(text: str) -> None:
    assert any(resource.startswith("process://") for resource in managed(text))
    assert not command(text).permits


@pytest.mark.parametrize(
    "text",
    [text for text in MANAGES if "mongosh" not in text and "kubectl" not in text] + ["pkill 'a*b[c]'", "pkill x/"],
)
def test_the_entry_that_a_denial_names_permits_it(text: str) -> None:
    under = mission()
    denied = judged("Bash", {"command": text}, under=under)
    assert denied.remedy is not None
    assert denied.remedy.changes
    wider, _ = applied(under, denied.remedy.changes, STANDING)
    assert judged("Bash", {"command": text}, under=wider).permits


@pytest.mark.parametrize(
    "text",
    [
        ".venv/bin/pip install six", ".venv/bin/python -m pip uninstall -y six", "./venv/bin/pip3 install six",
        "source .venv/bin/activate && pip install six", ". venv/bin/activate; pip uninstall -y six",
        "pip install -r requirements.txt", "pip install -e '.[dev]'", "pip install .", "uv run pip install six",
        "pip install -t vendor six", "uv pip install six", "uv add six", "poetry add six", "npm install six",
        "npm ci", "yarn add six", "pnpm add six", "bun add six", "npm uninstall six",
    ],
)  # fmt: skip
def test_packages_of_the_project_are_files_of_the_project(text: str) -> None:
    decision = command(text, scope=(BASE, "https://**"))
    assert managed(text) == set()
    assert decision.permits


@pytest.mark.parametrize(
    "text",
    [
        "(source .venv/bin/activate); pip install six", "cat .venv/bin/activate; pip install six",
        "source ./x.sh; pip install six", "source .venv/bin/activate & pip install six",
        "bash -c '. .venv/bin/activate'; pip install six", "/opt/x/bin/pip install six",
    ],
)  # fmt: skip
def test_an_environment_that_is_not_the_projects_is_the_machines(text: str) -> None:
    assert not command(text, scope=(BASE, "https://**")).permits


@pytest.mark.parametrize(
    "text",
    [
        "docker run -v /etc:/x alpine", "docker run -v ..:/x alpine", "docker run --volume=../x:/x alpine",
        "docker run --mount type=bind,source=/etc,target=/x alpine", "docker run --mount TYPE=bind,SRC=/etc,dst=/x a",
        "docker run --mount type=bind,Source=/etc,target=/x alpine", "docker run -v $PWD/..:/x alpine",
        """docker run --mount '"source=/work/app/..",type=bind,target=/x' alpine""", "docker run -v ~:/x alpine",
        "docker run --mount type=bind,src=/work/app,src=/etc,target=/x alpine",
        "docker run --mount type=bind,src=/etc,src=/work/app,dst=/x a", "docker run -v $X:/x alpine",
        "docker run --mount type=volume,volume-opt=device=/etc,target=/x alpine", "docker cp ../x app:/",
        "docker run --mount type=bind,src=/etc,source=/work/app,dst=/x a", "docker cp app:/x ../y",
        "docker compose run -v /etc:/x web ls", "docker run --mount type=other,src=/etc,target=/x alpine",
    ],
)  # fmt: skip
def test_what_a_container_mounts_is_a_path(text: str) -> None:
    assert not command(text, scope=(BASE, "container://*", "https://**", "http://**")).permits


def test_a_mount_in_the_folder_needs_no_more_than_the_container_does() -> None:
    scope = (BASE, "container://image", "https://registry-1.docker.io")
    for text in ("-v $PWD:/x", "-v ./src:/x:ro", "-v /x", "--mount type=bind,src=/work/app/src,dst=/x", "--tmpfs /x"):
        assert command(f"docker run --rm {text} alpine ls", scope=scope).permits, text


def test_an_image_comes_from_the_registry_that_its_name_says() -> None:
    for name, host in {
        "alpine": "registry-1.docker.io", "a/b:1": "registry-1.docker.io", "ghcr.io/a/b": "ghcr.io",
        "localhost:5000/a": "localhost:5000", "reg:5000/a/b@sha256:12ab": "reg:5000",
    }.items():  # fmt: skip
        assert f"contact https://{host}/" in touched(command(f"docker pull {name}")), name
        assert f"send https://{host}/" in touched(command(f"docker push {name}")), name


def managing(program: Program) -> Iterator[Program]:
    """Yield a program and its sub commands that use or change state of the machine whatever their words are."""
    if program.manages:
        yield program
    for sub in program.sub.values():
        yield from managing(sub)


def test_no_program_that_manages_something_is_permitted_in_a_scope_of_folders() -> None:
    programs = [program for name in program_names() if (known := known_program(name)) for program in managing(known)]
    assert len(programs) > 100
    for program in programs:
        for words in ("", " x", " -f x", " $X", " --unheard-of"):
            assert not command(f"{program.name}{words}").permits, program.name + words


def test_every_resource_of_a_table_has_a_kind_that_is_known() -> None:
    def resources(program: Program) -> Iterator[str]:
        yield from program.manages
        yield from (each for given in program.manages_if.values() for each in given)
        for sub in (*program.sub.values(), *program.sub_modules.values()):
            yield from resources(sub)

    found = {each for name in program_names() if (known := known_program(name)) for each in resources(known)}
    assert found
    assert all(split_machine(each) is not None for each in found)


# What an entry covers.


def covered(entry: str, resource: str) -> bool:
    return covers(build_scope((entry,), None), Effect("manage", resource, "word"))


@pytest.mark.parametrize(
    ("entry", "resource", "is_covered"),
    [
        ("db://app", "db://app", True), ("db://app", "db://app2", False), ("db://app", "db://*", False),
        ("db://*", "db://app", True), ("db://*", "db://*", True), ("db://**", "db://*", True),
        ("db://*", "process://1", False), ("**", "db://*", True), ("/", "db://app", False), ("/**", "db://app", False),
        ("package://pip", "package://pip/six", True), ("package://pip", "package://pip", True),
        ("package://pip", "package://pipx/six", False), ("package://pip/**", "package://pip/six", True),
        ("package://pip/**", "package://pip", False), ("package://pip/", "package://pip/six", True),
        ("package://pip/six", "package://pip", False), ("db://app_*", "db://app_dev", False),
        ("db://[*]", "db://*", False), ("db://", "db://x", False), ("db:///**", "db://x", False),
        ("process://a.[*]b", "process://a.*b", True), ("process://a.[*]b", "process://a.xb", False),
        ("https://**", "db://app", False), ("host://app", "db://app", False), ("DB://app", "db://app", False),
        ("container://*", "container://volume/x", True), ("container://volume", "container://volume/x", True),
        ("container://volume/x", "container://volume", False),
    ],
)  # fmt: skip
def test_what_an_entry_covers(entry: str, resource: str, is_covered: bool) -> None:
    assert covered(entry, resource) is is_covered


@pytest.mark.parametrize(
    "name", ["a", "a b", "a*", "*", "[", "a/b", "/a/b", "http://x/*", "a/", "a/**", "é", " a", "\u200b"]
)
def test_the_entry_for_a_name_means_it_and_no_other(name: str) -> None:
    resource = machine_resource("process", name)
    assert covered(escape_entry(resource), resource)
    assert resource == "process://*" or not covered(escape_entry(resource), "process://*")
    assert not covered(escape_entry(resource), "db://x")


def test_no_entry_for_a_path_or_a_host_covers_state_of_the_machine() -> None:
    for kind in MACHINE_KINDS:
        for entry in ("/", "/**", ".", "*", "https://**", "http://**", "host://x", f"{kind}:x", f"{kind}:/x"):
            assert not covers(build_scope((entry,), BASE), Effect("manage", f"{kind}://x", "word")), entry


def test_the_target_of_a_call_is_the_state_that_it_changes() -> None:
    assert command("cat a && dropdb x").action.target == "db://x"
