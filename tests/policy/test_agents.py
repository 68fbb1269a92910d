"""Command lines that would start an agent that nobody governs, however they name it."""

from pathlib import Path

import pytest

from remit.policy.agents import find_agent
from remit.policy.files import LocalFiles
from tests.policy.judging import command


def started(text: str) -> str:
    """Return the agent that a command line would start."""
    return find_agent(command(text, scope=("**",), cwd="/work/app").action.commands or ())


@pytest.mark.parametrize(
    "text",
    [
        "python3 -mremit", "python3 -I -m remit", "python3 -Im remit", "python3 -W x -m remit", "python -m remit.cli",
        "coverage run -m remit", "coverage run .venv/bin/remit", "python3 -m cProfile -m remit",
        "python3 -m pdb -m remit", "python3 .venv/bin/remit", "python x/site-packages/remit/__main__.py",
        "python src/remit/__main__.py",
        "uv run -m remit", "node node_modules/.bin/claude", "sh ./node_modules/.bin/claude",
        "bash node_modules/.bin/gemini", "node x/codex.js exec", "node node_modules/@anthropic-ai/claude-code/cli.js",
        "deno run -A npm:@anthropic-ai/claude-code@1.0", "bun run claude", "bun node_modules/.bin/claude",
        "pnpm -r exec claude", "pnpm claude", "lerna exec claude", "yarn run claude", "yarn node x/.bin/claude",
        "yarn workspace web exec claude", "npm --prefix x exec claude", "npx --no-install cross-env A=1 claude",
        "npx tsx node_modules/.bin/claude", "docker exec c claude", "docker exec -it c sh -c 'claude -p x'",
        "docker run -it image claude", "docker compose exec web claude", "tmux new -d 'claude -p x'",
        "env -S 'claude -p x'", "cp node_modules/.bin/claude ./tool", "ln -s .venv/bin/remit tool",
        "cp -r node_modules/@openai/codex x", "mv node_modules/opencode-ai x",
    ],
)  # fmt: skip
def test_an_agent_is_found_behind_whatever_runs_it(text: str) -> None:
    assert started(text)


@pytest.mark.parametrize(
    "text",
    [
        "python3 -m pytest tests/remit", "python3 -u tools/x.py claude", "coverage run --source remit -m pytest",
        "coverage run --source=codex -m pytest codex", "node server.js --claude", "npm install codex",
        "npm run claude-test", "npm run claude", "yarn test claude", "nx build codex", "npx eslint claude",
        "docker build -t claude .", "docker logs claude", "cp claude.md x.md", "mv src/claude.ts src/codex.ts",
        "python3 remit/tools/x.py", "node src/codex.test.js", "node codex/build.js", "git clone https://github.com/openai/codex",
        "gh pr create --title x --body 'Generated with Claude Code'", "cat node_modules/@openai/codex/README.md",
        "ls node_modules/.bin/claude", "deno run src/main.ts claude", "cross-env A=1 node server.js claude",
    ],
)  # fmt: skip
def test_what_only_mentions_an_agent_starts_none(text: str) -> None:
    assert started(text) == ""


def test_a_link_to_an_agent_is_the_agent(tmp_path: Path) -> None:
    package = tmp_path / "node_modules/@anthropic-ai/claude-code"
    package.mkdir(parents=True)
    (package / "cli.js").write_text("")
    (tmp_path / "tool").symlink_to(package / "cli.js")
    for text in ("./tool -p x", "node tool", "bash tool"):
        decision = command(text, scope=(str(tmp_path),), files=LocalFiles())
        assert find_agent(decision.action.commands or ())
