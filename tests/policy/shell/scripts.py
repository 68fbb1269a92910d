"""Random shell scripts: words, commands and compound commands put together from lists of small parts.

The scripts run only programs that do not exist, whose names are in `PROGRAMS`, and builtins of the shell. They redirect
output to no file but /dev/null, also after a mutation (`is_safe`), so running one changes nothing.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

__all__ = ["ENVIRONMENTS", "PROGRAMS", "Script", "build_script", "is_safe", "mutate", "tokens"]

# Programs that scripts run, each with what it prints. `hit` stands only in texts that nothing should evaluate.
PROGRAMS: Final = {"cmd": "", "c2": "", "c3": "", "zz": "o p", "zn": "7", "zx": "a[$(hit x)]", "hit": ""}
# Variables that the environment may hold and of which a reader of the script knows nothing.
ENVIRONMENTS: Final[tuple[dict[str, str], ...]] = ({}, {}, {"u": "x y"}, {"u": "*", "w": "k"}, {"n": "3", "v": "ab/cb"})

_MAX_PICKS: Final = 20
_NAMES: Final = ("v", "v", "v", "w", "w", "n")
_PLAIN: Final = (
    "a", "a", "b1", "/x", "../y", "d/a", "-o", "--k=v", "=", "a=b", "%s", "a#b", "-", "z", "x/../y", "..", ".", "ab",
)  # fmt: skip
_QUOTED: Final = (
    "'q r'", '"d q"', "$'t\\x41\\n'", '"a\\$b"', "''", '""', "\\;", "\\ ", "\\\\", '"\\\\"', '"l1\nl2"', "'a'\"b\"c",
    '$"x"', "'$(zz)'", "'*'", '"{a,b}"', '"a\'b"', "'a\"b'", '"\\"x\\""', '\\"', "a\\\nb", "\\\n", "\\$v", "'{'",
    "\\{", '"$(zz "$v" \'k\')"', "$'\\''", "\\'",
)  # fmt: skip
_EXPANSIONS: Final = (
    "$v", "$v", '"$v"', '"$v"', "${v}", '"${v}z"', "$w", '"$w"', "$n", "$u", '"$u"', "${v:-d}", "${u:-d e}",
    "${v:+p}", '${v+"a b"}', '${v:-"a b"}', '"${v:-a b}"', "${v:-$(zz)}", "${u:-{a,b}}", "${w:-*}", "${v:=x}",
    '"${v%a}"', '"${v%%b*}"', '"${v##*/}"', "${w#*a}", '${v%"a"}', '"${v%/*}"', "${v%/*}", '"${PWD%/*}"',
    '"${PWD##*/}"', "${PWD%%/*}", "$PWD", '"$PWD/d"', '"$PWD-x"', "${v/a/b}", '"${v//a/b}"', "${v/#a/x}", "${v/%b/x}",
    "${v/a/$(zz)}", "${v^}", "${v^^}", "${v,,}", "${#v}", "${v:1}", "${v:1:2}", '"${v: -1}"', "${!v}", '"${!v}"',
    "${v@Q}", "${v[0]}", "${v[1]}", "${v[n]}", "${v[@]}", '"${v[@]}"', '"${v[*]}"', "${#v[@]}", "${!v[@]}",
    '"${v[@]:1}"', '"${v[@]%b}"', "$1", "${1}", '"$1"', "$2", '"$@"', "$@", "$*", '"$*"', '"$@"', '"x$@y"', "${@:2}",
    "$#", "$?", "$$", "$-", "$0", "$_", "$RANDOM", "$SECONDS", "$UID", "$OPTIND", "$LINENO", "$HOME", '"$HOME"',
    "${1-c3}", '"${2-q r}"', "${1+p}", "${9-$(zz)}", "${v-d}", "${w+e}", "$!", '"$!"', "${!}", "$GROUPS",
    "$OLDPWD", "${v}b", "$v/b", '"$v"/b', "$v$w", '"$v$w"', "$v-b", "$v.b", "${v}_b", "$v_b", '"$v b"',
)  # fmt: skip
_SUBSTITUTIONS: Final = (
    "$(zz k)", '"$(zz k)"', "`zz k`", '"a`zz`b"', "$(zn)", "$(echo p q)", '"$(echo p q)"', "$(printf '%s\\n' p)",
    "$(c2 $(c3))", "$( c2 | c3 )", "<(zz k)", ">(c2)", "$(< a)", '"$(echo "$v")"', "$(pwd)", '"$(pwd)-x"',
    "`c2 \\`c3\\``", "$(case a in a) c2;; esac)", "$(v=q; c2 $v)", "$(c2 <<E\n$(c3)\nE\n)", "$(c2 # x\n)",
    "$(echo '$(zz)')",
)  # fmt: skip
_ARITHMETIC: Final = (
    "$((1+2))", "$((n))", "$((n+1))", "$((v[0]))", "$((n=5))", "$((n++))", "$(($n))", "$((w[n]))", "$(( ${u:-3} ))",
    "$((1+2))x", "$((n?1:2))", "$((10#$n))",
)  # fmt: skip
_BRACES: Final = (
    "{a,b}", "{1..3}", "x{,y}z", "{x", "y}", "{}", "{a,{b,c}}", "{$v,$w}", '{a,"b c"}', "{$(zz),b}", "$v{a,b}",
    "${v}{a,b}", "{a,b}$v", "{a..c}", "{3..1}", "{a,b}{c,d}", "{a\\,b,c}", "{$(zz)}", "$v{$(zz)}", "$v{$(c2),b}",
    '"$v"{a,b}', "{`zz`,a}", "a{b,$((1+1))}", "{a,'b,c'}", "$v{}", "$v{b", "{$v}", "{a,b}$(zz)", "$(zz){a,b}",
    "${v:-x}{$(c2)}", "$((1)){$(c2)}", "{a,b}{$(c2)}", "$1{$(c2)}", "$w{_,b}", "{$,x}v", "{w,\\{}$v",
)  # fmt: skip
_GLOBS: Final = (
    "*", "?", "[ab]", "d/*", "*/a", "[!x]*", "\\*", '"*"', "*'r'", "[a-c]1", "[[:alpha:]]", "d/?", "b*", ".*",
)  # fmt: skip
_TILDES: Final = ("~", "~/x", "~+", "~/$v", "v=~", "a=~/x:~/y", "~root", "~-", "a:~", "-o~", "v=$w:~", "v='a':~/b")
# Forms that are mostly refused.
_RARE: Final = (
    "${v@E}", "${v@A}", "${v@P}", "${v[$(zn)]}", "${!v*}", "${v:$(zn)}", "${v:n}", "\"${v%'a'}\"", "$(( $(zn) ))",
    "$((v))", "$(( w[$(zn)] ))", '"${v:-"a b"}"', "v{a,b}=$(zz)", "{1..3..2}", "{01..03}", "#c", "$[1+2]",
    "${v:-'a b'}", "!(a)",
)  # fmt: skip
_WORDS: Final[tuple[tuple[int, Sequence[str]], ...]] = (
    (32, _PLAIN),
    (1, _RARE),
    (12, _QUOTED),
    (34, _EXPANSIONS),
    (9, _SUBSTITUTIONS),
    (3, _ARITHMETIC),
    (11, _BRACES),
    (5, _GLOBS),
    (1, _TILDES),
)
_VALUES: Final = (
    "1", "'a b'", '"x y"', "$v", "abc", "ab/cb", "{a,b}", "~", "", "$(zz)", "a\\ b", "a:~", "'*'", "'a[$(hit v)]'",
    "'$(hit v)'", '"$v"b', "${w}c", "../y", "$PWD/d", "~/x", '"${v%b*}"', "$((n+1))", "(a b)", '(a "$v")',
    "(a $(zz) b)", "([1]=x [0]=y)", "([n]=x)", "(*)", "({a,b})", "$1", '"$@"', "$*", "5", "3", "0", "v", "w", "d",
    "$(zn)", "$(zx)", "$(pwd)", "${v:-k}", "${v/b/c}", "`zz`", "$'a\\tb'", "a'b'\"c\"", "{$(zz),..}", "a=b", "*",
)  # fmt: skip
_TARGETS: Final = (*("{}",) * 40, "{}[0]", "{}[1]", "{}[n]", "{}[$(zn)]")
_SPECIAL: Final = (
    "OPTIND", "RANDOM", "SECONDS", "LINENO", "HISTCMD", "UID", "OLDPWD", "_", "REPLY", "BASHPID", "SRANDOM",
)  # fmt: skip
# Texts that run a command where they are evaluated as arithmetic, and places where they may be.
_PAYLOADS: Final = (
    "'a[$(hit p)]'", "'a[$(hit p)]'", "$(zx)", "'x[$(hit p)]+1'", "\"a[\\$(hit p)]\"", "v", "'w[n]'",
)  # fmt: skip
_EVALUATIONS: Final = (
    "{special}={payload}", "{special}={payload}", "{special}+={payload}", "export {special}={payload}",
    "declare {special}={payload}", "printf -v {special} %s {payload}", "read {special} <<< {payload}",
    "zx | {{ read {special}; }}", "for {special} in {payload}; do :; done", "local {special}={payload}",
    "readonly {special}={payload}", "{special}={payload} c2", "mapfile {special} <<< {payload}",
    "getopts a {special}", ": ${{{special}:={payload}}}", "{name}={payload}; : $(({name}))",
    "{name}={payload}; : ${{w:{name}}}", "{name}={payload}; : ${{!{name}}}", "{name}={payload}; w=([{name}]=1)",
    "{name}={payload}; w[{name}]=1", "{name}={payload}; : ${{w[{name}]}}", "{name}={payload}; n={name}; : $((n))",
    "{name}={payload}; let n={name}", "{name}={payload}; (({name}))", "{name}={payload}; [[ {name} -eq 1 ]]",
    "set -- {payload}; : $(($1))", "w=({payload}); : $((w))", "w[0]={payload}; : $((w[0]))",
    "{name}={payload} eval ': $(({name}))'", "f() {{ : $((n)); }}; n={payload} f",
    "{name}={payload}; : ${{@:{name}}}", "{name}={payload}; unset 'w[{name}]'",
    "{name}={payload}; printf -v 'w[{name}]' x", "{name}={payload}; for ((n={name}; n<0; )); do :; done",
    "{name}={payload}; exit {name}", "{name}={payload}; : {{1..${name}}}", "{name}={payload}; [[ -v ${name} ]]",
    "{name}={payload}; read w[{name}] <<< x", "{name}={payload}; test ${name} -eq 1",
    "{name}={payload}; shift {name}", "declare -i n={payload}", "{name}={payload}; : ${{#w[{name}]}}",
    "{name}={payload}; w+=([{name}]=1)", "{name}=({payload} b); : $(({name}[0]))",
)  # fmt: skip
_BODIES: Final = (
    "hi", "$v x", "$(zz)", "a \\$x `zz`", "l\\\\ ", "${v:-$(c2)}", "'$(zz)'", "$((1+2))", '"$v"', "{a,b} *",
)  # fmt: skip
_REDIRECTS: Final = (
    " >/dev/null", " 2>&1", " </dev/null", ' <<<"$v"', " 2>/dev/null", " >&2", " <<<$v", " <<<$(zz)", " < a",
    " < <(zz)", " {fd}</dev/null", " <<<{a,$(zz)}", " < $v", " < d/*", " 3</dev/null", " <&0", " &>/dev/null",
)  # fmt: skip
_CONDITIONS: Final = (
    "[[ a == b ]]", "[[ -n $v ]]", "[[ $v == a* ]]", "[[ x < y && a ]]", "[[ $v -eq 1 ]]", "[[ n -eq 0 ]]",
    "[[ v -lt w ]]", "[[ $v =~ ^a(b*)$ ]]", "[[ $(zz) ]]", "[[ -v v ]]", "[[ -v v[n] ]]", "[ \"$v\" = a ]",
    "[ $v -eq 1 ]", "test -n \"$v\"", "[[ -z ${u:-$(c2)} || $(c3) ]]", "[[ $n -gt $(zn) ]]", "[[ '1 + 1' -eq 2 ]]",
    "[ -f a ]", "[[ -d $v ]]", "[[ ! -e $v ]]", "[ -v 'v[$(hit t)]' ]", "test -v v", "[[ \"$(zx)\" -eq 1 ]]",
    "[[ ( -n $v ) ]]", "[ $(zn) -gt 1 ]", "[ \"$n\" -eq \"$v\" ]", "[[ a != $v{$(zz)} ]]", "[[ $v == {a,$(c2)} ]]",
    "[[ -n {$(zz),b} ]]",
)  # fmt: skip
_CALCULATIONS: Final = (
    "((n+=1))", "((n++))", "((v))", "(( 1 < $n ))", "((w[n]=1))", "(( $(zn) ))", "let n=n+1", 'let "n = 2"',
    "let n=$(zn)", "let v", "let 'n=w[$(hit l)]'", "((n=v))", "let n++", "(( n = ${u:-1} ))", "let n=v", "((1/0))",
    "let \"$v\"", "(( w[$(zn)]++ ))", "((10))", "let {n=1,n=$(zz)}",
)  # fmt: skip
_SETTINGS: Final = (
    "set -e", "set -u", "set -eu", "set +e", "set -f", "set -x", "set -o pipefail", "set -a", "set -b", "set +u",
    "shopt -s extglob", "shopt -s nullglob", "shopt -s dotglob", "IFS=:", "IFS=b", "unset IFS", "set -n", "set -C",
)  # fmt: skip
_ERRORS: Final = (
    ": $((1/0))", ": ${{u?}}", ": ${{nope:?gone}}", "readonly r=1; r=2", ": $((1+))", ": ${{!nope}}", "n=$((1/0))",
    ": ${{v:1:-9}}", "(( 1/0 ))", "cmd $((1/0))", "readonly {name}; {name}=b", "r=2 cmd", "unset r",
    "declare -i n=1/0", ": ${{v[-9]}}", "{name}=$((1/0))", "cmd ${{nope?}}", "for r in a b; do c2; done",
    "read r <<<x", "let 1/0", "[[ 1/0 -eq 1 ]]", ": $((n=))", "UID=5", "set -u; : $nope", "v[-9]=1", "exec 4</nope/x",
    ": </nope/x", "eval ': $((1/0))'", "(: $((1/0)))",
)  # fmt: skip
# What stands for all parameters or elements, and commands in which bash joins them, or keeps them apart.
_LISTS: Final = (
    "$@", '"$@"', "$*", '"$*"', '"x$@"', "$@y", '${1+"$@"}', '"${1+$@}"', '"${u:-$@}"', "${w:-$@}", "${v[@]}",
    '"${v[@]}"',
    '"${v[*]}"', '"${u:-${v[@]}}"',
)  # fmt: skip
_JOINED: Final = (
    "set -- {word} {other}; {name}={list}; c2 ${name}", "set -- c2 {word}; {name}={list}; ${name}",
    "f() {{ {name}={list}; c2 ${name}; }}; f {word} {other}", "f() {{ local n={list}; $n; }}; f c2 {word}",
    "set -- {word} {other}; c2 {list} {list}", "set -- c2 {word}; {name}={list}; eval \"${name}\"",
    "set -- {word} {other}; export {name}={list}; c2 ${name} \"${name}\"",
    "set -- a {word}; {name}+={list}; c2 ${name}",
    "v=({word} {other}); {name}={list}; c2 ${name}", "v=(c2 {word}); {name}={list}; ${name}",
    "set -- {word} {other}; IFS=-; {name}={list}; c2 \"${name}\"", "set -- {word}; shift; {name}=x{list}y; c2 ${name}",
    "set -- {word} {other}; : ${{u:={list}}}; c2 $u", "v=({word} {other}); export {name}={list}; c2 ${name}",
)  # fmt: skip
# Commands that do not set what they seem to set, set more, or fail; what follows shows it.
_UNSETTLED: Final = (
    "{name}=a; declare -p {name}=c3; c2 ${name}", "{name}=a; declare -F {name}=c3; c2 ${name}",
    "{name}=a; typeset -xp {name}=b; c2 ${name}", "f() {{ {name}=a; local -p {name}=b; c2 ${name}; }}; f",
    "{name}=a; export -p {name}=b; c2 ${name}", "{name}=a; {name}=b export {name}; c2 ${name}",
    "{name}=a; {name}=b readonly q; c2 ${name}", "{name}=a; {name}=b declare -x {name}; c2 ${name}",
    "((POSIXLY_CORRECT=1)); {name}=a; {name}=b :; c2 ${name}", "let POSIXLY_CORRECT=1; v=a; v=b export q; c2 $v",
    "((POSIXLY_CORRECT++)); {name}=a; {name}=b :; c2 ${name}", "v=a0b; ((IFS=0)); c2 $v",
    "v=a0b; : ${{v:IFS=0}}; c2 $v",
    "v=a0b; : ${{v:1?IFS=0:0}}; c2 $v", "v=a0b; : ${{@:IFS=0}}; c2 $v", "v=a0b; w=(1); : ${{w[@]:IFS=0:1}}; c2 $v",
    'v=a0b; : ${{v:"IF"S=0}}; c2 $v', "v=a0b; w=v; : ${{!w:IFS=0}}; c2 $v", "n=3; v=abcdef; : ${{v:n=1}}; c2 $n",
    "FUNCNEST=1\nf() {{ {name}=a; }}; g() {{ f; }}\n{name}=b\ng\nc2 ${name}",
    "((FUNCNEST=1))\nf() {{ cd d; }}; g() {{ f; }}\ng\nc2 {word}",
    "ulimit -Sn 3\n{name}=$(echo {word})\nulimit -Sn 99\nc2 \"${name}\"",
    "ulimit -Sn 3\ncd $(echo d)\nulimit -Sn 99\nc2",
    "cd d; cd ..; OLDPWD=/ cd -; c2", "readonly PWD; cd d || c2", "readonly OLDPWD; cd d && exit; c2 {word}",
    "c2 $(c3 <<'E'\nE\n)", "c2 $(c3 <<'E'\nE zz)\nE\n)", "v=$(c2 <<E\n$v\nE) && c3 {word}\nE\n)",
    "c2 \"$(c3 <<-E\n\tE)\"; zz\n#\"\nE\n)", "c2 <(c3 <<E\nE) {word}; zz\nE\n)", "c2 $( (c3 <<'E'\nE; zz) )\nE\n) )",
    "set --; ${{1-c2}} {word}", "set -- {word}; shift; c2 ${{1-{other}}} ${{1+{word}}}",
    "f() {{ local {name}; c2 ${{{name}-c3}} ${{1-{word}}}; }}; f", "f() {{ ${{1-c2}} \"${{2-{word}}}\"; }}; f; f c3",
    "set -- '' {word}; c2 ${{1-a}} ${{1:-b}} ${{1+c}} ${{3-d}}", "sh() {{ c3; }}; eval \"${{1-c2}}\"",
    "{name}='a[$(hit p)]' let {name}", "GROUPS=d; c2 $GROUPS; cd $GROUPS && c3", "GROUPS=(a); c2 ${{GROUPS[0]}}",
    "trap 'c2 {word}' EXIT; c2() {{ c3; }}; unset -f c2", "trap 'c2' EXIT; (c2() {{ c3; }})",
    "trap f EXIT; f() {{ c2; }}; [ -n \"$u\" ] || exit; f() {{ c3; }}", "c2() {{ c3; }}; trap c2 EXIT; unset -f c2",
    "c2 & c3 $!; c2 ${{!-a}}", "c3 $! {word}; c2 &", "(c2 &); c3 $!", "{name}=$!; c2 ${name}; c3 & c2 ${name} $!",
    "v[]=() w=a; c2 $w", "v=(a) w=$(c2 $v) c3", "v[1]=(b); c2 {word}", "read; c2 {word}", "c2 $((u+1)); c3 {word}",
    "cd d$((v)); c2",
    "c2 w=~{{,}} w=~/{{a,b}} w={{a,b}}:~", "v='x x'; c2 $v{{,b}}", "v='x x'; c2 $v{{,b}}$(zz)",
)  # fmt: skip
# What other shells than bash read in another way.
_OTHER_READINGS: Final = (
    "{name}=c2; {name}=c3 &>/dev/null; ${name}", "{name}=c2; : && {name}=c3 &>/dev/null && :; ${name}",
    "set -- c2; set -- c3 &>/dev/null; $1", "c2() {{ c3; }} &>/dev/null; c2", "exit &>/dev/null; c2 {word}",
    "{name}=c2; {{ {name}=c3; }} &>>/dev/null || :; ${name}", "if {name}=c3 &>/dev/null; then ${name}; fi",
    "set -- {{a,b}} c2; $2", "set -- {{c2,c3}} zn; $2", "f() {{ $2; }}; f {{c2,zz}} c3",
    "set -- $(echo {{a,b}} c3); $2",
    "for {name} in {{c2,c3}} zz; do ${name}; done", "set -- {{c3..c3}} c2; $2", "set -- $\"c2\" c3; $2; ${{1#?}}",
    "set -- 12>/dev/null c2; $1; $2", "x='a {name}=c2'; export {name}=c3 w=$x; ${name}",
    "{name}=c2; {name}=c3 export w; ${name}", "{name}=c2; {name}=c3 :; ${name}", "c2 &>/dev/null; c3",
    "c2 &>/dev/null c3",
    "set -- w=~ c2; $2", "eval 'set -- {{a,b}} c2'; $2", "trap '$w; set -- {{a,b}} c3; $2' EXIT",
)  # fmt: skip
_FUNCTION_NAMES: Final = (
    "f", "f", "f", "g", "/x/f", "./f", "cmd", "c2", "zz", "a.b", "f-g", "echo", "cd", "test", "d/a",
)  # fmt: skip


class Script(NamedTuple):
    """A script, the variables that its environment holds, and what its programs return, as a seed."""

    text: str
    environment: dict[str, str]
    seed: int = 0


class _Writer:
    """Writes the parts of one script."""

    def __init__(self, chance: random.Random, *, posix: bool = False) -> None:
        self.chance = chance
        self.posix = posix
        self.depth = 0

    def pick(self, items: Sequence[str]) -> str:
        for _ in range(_MAX_PICKS):
            item = items[int(self.chance.random() * len(items))]
            if not self.posix or not _BASH_ONLY.search(item):
                return item
        return "zz"

    def atom(self) -> str:
        at = self.chance.random() * _WORD_WEIGHT
        for weight, atoms in _WORDS:
            at -= weight
            if at < 0:
                return self.pick(atoms)
        return "a"

    def word(self) -> str:
        length = self.chance.random()
        if length < 0.6:
            return self.atom()
        return self.atom() + self.atom() if length < 0.88 else self.atom() + self.atom() + self.atom()

    def words(self, most: int = 3) -> str:
        return " ".join(self.word() for _ in range(int(self.chance.random() * (most + 1))))

    def name(self) -> str:
        return self.pick(_NAMES) if self.chance.random() < 0.95 else self.pick(_SPECIAL)

    def value(self) -> str:
        return self.pick(_VALUES) if self.chance.random() < 0.75 else self.word()

    def assignment(self) -> str:
        joint = "+=" if not self.posix and self.chance.random() < 0.1 else "="
        return f"{self.pick(_TARGETS).format(self.name())}{joint}{self.value()}"

    def program(self) -> str:
        return self.pick(("cmd", "c2", "c3"))

    def simple(self) -> str:
        count = max(0, int(self.chance.random() * 6) - 3)
        before = "".join(f"{self.assignment()} " for _ in range(count))
        if self.chance.random() < 0.04:
            return f"{before}{self.word()} {self.words()}"
        text = f"{before}{self.program()} {self.words()}"
        kind = self.chance.random()
        if kind < 0.1:
            text += self.pick(_REDIRECTS)
        elif kind < 0.15:
            mark = self.pick(("E", "E", "E", "'E'", "\\E"))
            text += f" <<{mark}\n{self.pick(_BODIES)}\nE\n"
        return text

    def assign(self) -> str:
        return " ".join(self.assignment() for _ in range(1 + (self.chance.random() < 0.25)))

    def declare(self) -> str:
        form = self.pick(_DECLARATIONS)
        name = self.name() if not form.startswith(("readonly", "declare -r")) else self.pick(("r", "v"))
        return form.format(name, self.value())

    def builtin(self) -> str:
        form = self.pick(_BUILTIN_FORMS)
        return form.format(name=self.name(), word=self.word(), words=self.words(), other=self.word())

    def evaluated(self) -> str:
        form = self.chance.random()
        if form < 0.5:
            return "eval '" + self.simple().replace("'", "") + "'"
        if form < 0.7:
            return f"eval {self.program()} {self.words()}"
        if form < 0.85:
            return "trap '" + self.simple().replace("'", "") + "' EXIT"
        return f'eval "{self.program()} $v"'

    def error(self) -> str:
        error = self.pick(_ERRORS).format(name=self.name())
        return f"{self.assign()}\n{error}; {self.assign()}\n{self.simple()}"

    def evaluation(self) -> str:
        names = {"special": self.pick(_SPECIAL), "name": self.pick(_NAMES), "payload": self.pick(_PAYLOADS)}
        return self.pick(_EVALUATIONS).format(**names)

    def unsettled(self) -> str:
        """Return commands that leave other values than it seems."""
        forms = (*_JOINED, *_JOINED, *_UNSETTLED)
        form = self.pick(forms) if not self.posix or self.chance.random() < 0.3 else self.chance.choice(_OTHER_READINGS)
        words = {
            "name": self.pick(("v", "w", "n")),
            "word": self.word(),
            "other": self.word(),
            "list": self.pick(_LISTS),
        }
        return form.format(**words)

    def compound(self) -> str:
        compounds = _COMPOUNDS if self.posix else (*_COMPOUNDS, *_BASH_COMPOUNDS)
        return compounds[int(self.chance.random() * len(compounds))](self)

    def function(self) -> str:
        name = self.pick(_FUNCTION_NAMES)
        body = self.pick(("{{ {} }}", "{{ {} }}", "( {} )", "if c3; then {} fi", "{{ local v={}; {} }}"))
        value = self.value() if "local" in body else ""
        inner = ended(self.list())
        text = body.format(value, inner) if value else body.replace("local v={}; ", "").format(inner)
        head = f"function {name}" if not self.posix and self.chance.random() < 0.15 else f"{name}()"
        return f"{head} {text}{self.pick(('; ', chr(10)))}{name} {self.words()}"

    def list(self) -> str:
        """Return one command, or several joined in some way."""
        self.depth += 1
        text = self.statement()
        while self.depth < 4 and self.chance.random() < (0.6 if self.depth == 1 else 0.3):
            joint = "" if text.endswith("\n") else self.pick(_JOINTS)
            text += joint + self.statement()
        self.depth -= 1
        return text

    def statement(self) -> str:
        at = self.chance.random() * _STATEMENT_WEIGHT
        for weight, write in _STATEMENTS:
            at -= weight
            if at < 0:
                return write(self) if self.depth < 4 else self.simple()
        return self.simple()


# What only bash reads, or other shells read in another way.
_BASH_ONLY: Final = re.compile(
    r"\[\[|\(\(n|<<<|[<>]\(|&>|\|&|\{fd|\$['\"\[]|\$\{[!@]|\$\{#?\w+[\[/^,@]|\$\{\w+:[^-+=?]|\w\[|=\(|^\(|\$\(<|~\+|\+=|/f|d/a$"
    r"|a\.b|f-g|read -a|declare|typeset|let |pushd|popd|mapfile|readarray|printf -v|shopt|builtin|coproc|select"
)
_WORD_WEIGHT: Final = sum(weight for weight, _ in _WORDS)
_DECLARATIONS: Final = (
    "export {}={}", "export {}={}", "readonly {}={}", "declare {}={}", "declare -i {}={}", "declare -a {}={}",
    "export {}", "local {}={}", "typeset {}={}", "declare -r {}={}", "export {}={} q={{a,$(zz)}}",
    "declare -A {}; {}[a]=1", "readonly {}", "declare {}[0]={}", "export -n {}", "declare -x {}={}",
    "declare -n {}=v", 'export "{}={}"', "declare +x {}={}", "export {}={{a,..}}",
)  # fmt: skip
_LEAVES: Final = ("break", "continue", "continue 2", "break $n")
_JOINTS: Final = ("; ", "; ", "; ", "\n", "\n", "\n", " && ", " || ", " | ", " & ", " |& ")
_BUILTIN_FORMS: Final = (
    "printf -v {name} %s {word}", "printf -v {name} '%s%s' {word} {other}", "printf -v 'w[n]' x",
    "printf -v \"w[$v]\" %s x", "read {name} <<< {word}", 'read -r {name} w <<<"$v"', "zz | read {name}",
    "zx | {{ read {name}; c2 $((n)) $v; }}", "mapfile -t {name} <<< {word}", "readarray {name} < <(zz)",
    "getopts ab: {name} {words}", "set -- {words}", "set -- {words}", "set -- {words}",
    "set -- {word} {other}; shift", "shift", "shift 2", "shift $n", "unset {name}", "unset 'v[0]'",
    "unset 'v[$(hit u)]'", "unset -v {name}", "cd d", "cd ..", "cd d && c2", "cd {word}", "pushd d", "cd -",
    "(cd d; c2)", ": ${{{name}:=x}}", ": {words}", "true", "false", ":", "command {word} {words}",
    "command cmd {words}", "builtin echo {word}", "export {name}", "wait", "echo {words}", "printf '%s\\n' {words}",
    "type cmd", "hash -r", "command -v cmd", "return", "exit", "exit 1", "break", "umask", "exec c2 {words}",
    "unset -f f", "echo {word} | {{ read {name}; c2 \"${name}\"; }}", "test {word} = {other}", "[ {word} = {other} ]",
    "[[ {word} == {other} ]]", "read -a {name} <<< \"a b\"", "OPTIND={word}", "SECONDS={word}", "RANDOM={word}",
    "popd", ". ./a", "alias c2=c3", "times", "printf %d {word}", "printf -v n %d {word}", "wait -p {name}",
    "read -t 0 {name}",
)  # fmt: skip


def ended(text: str) -> str:
    """Return the text with its end, so that a closing word can follow."""
    return text if text.endswith("\n") else f"{text}; "


_Write = Callable[[_Writer], str]
_COMPOUNDS: Final[tuple[_Write, ...]] = (
    lambda w: f"( {w.list()}\n)",
    lambda w: f"{{ {ended(w.list())}}}{w.pick(('', '', w.pick(_REDIRECTS)))}",
    lambda w: f"if {ended(w.list())}then {ended(w.list())}fi",
    lambda w: f"for {w.name()} in {w.words()} {w.word()}; do {ended(w.list())}done",
    lambda w: f"for {w.name()} in {w.words()} {w.word()}; do {ended(w.list())}{w.pick(_LEAVES)}; c2\ndone",
    lambda w: f"for v; do {ended(w.list())}done",
    lambda w: f"while {ended(w.list())}do {ended(w.list())}break; done",
    lambda w: f"{w.pick(('until c2', 'until c2', 'until c2', 'select v in a'))}; do {ended(w.list())}break; done",
    lambda w: f"zz | while read {w.name()}; do {ended(w.list())}done",
    lambda w: f"case {w.word()} in {w.word()}|b) {w.list()}\n;; *) {w.list()}\n;; esac",
    lambda w: f"case $v in $(zz)) {w.list()}\n;; [a-c]*) c2\n;; esac",
    lambda w: f"{w.pick(('!', '!', '!', '!', 'coproc'))} {w.simple()}",
    lambda w: f"time {w.simple()}",
    lambda w: f"{w.program()} {w.words()} | {w.simple()}",
    lambda w: f"set -- {w.word()} {w.word()}; while [ $# -gt 0 ]; do c2 \"$1\" {w.word()}; shift; done",
    lambda w: f"for v in {w.words()} {w.word()}; do c2 \"$v{w.pick(_PLAIN)}\"; done",
)  # fmt: skip
_BASH_COMPOUNDS: Final[tuple[_Write, ...]] = (
    lambda w: f"if {w.pick(_CONDITIONS)}; then {ended(w.list())}else {ended(w.list())}fi",
    lambda w: f"for ((n=0; n<2; n++)); do {ended(w.list())}done",
    lambda w: f"until {w.pick(_CONDITIONS)}; do {ended(w.list())}break; done",
    lambda w: f"{w.pick(_CONDITIONS)} {w.pick(('&&', '||'))} {w.simple()}",
)  # fmt: skip
_STATEMENTS: Final[tuple[tuple[int, _Write], ...]] = (
    (44, _Writer.simple),
    (20, _Writer.assign),
    (5, _Writer.declare),
    (9, _Writer.builtin),
    (3, _Writer.evaluated),
    (1, lambda w: w.pick(_SETTINGS)),
    (2, lambda w: w.pick(_CALCULATIONS)),
    (2, lambda w: w.pick(_CONDITIONS)),
    (1, _Writer.evaluation),
    (2, _Writer.error),
    (2, _Writer.unsettled),
    (13, _Writer.compound),
    (4, _Writer.function),
)
_STATEMENT_WEIGHT: Final = sum(weight for weight, _ in _STATEMENTS)


def build_script(seed: int, *, posix: bool = False) -> Script:
    """Return the script of a seed; `posix` for one that any shell reads in much the same way."""
    chance = random.Random(seed)
    text = _Writer(chance, posix=posix).list()
    return Script(text, chance.choice(ENVIRONMENTS), seed)


# Every `>` leads to no file. A text that is evaluated may hold one too, so quotes make no difference.
_WRITES: Final = re.compile(r">(?!(?:/dev/null|&[12])(?:[\s;)&|]|'?(?:[\s;)]|\Z))|\(|&2\Z)|\\(?:x3|0?7)")


def is_safe(text: str) -> bool:
    """Tell whether a text redirects output to no file but /dev/null, whatever part of it is run."""
    return _WRITES.search(text) is None and "\0" not in text


_TOKEN: Final = re.compile(r"\s+|[A-Za-z0-9_/.]+|.", re.DOTALL)
_INSERTED: Final = "\"'`$(){};&|\n =[]*?!#~,\\@%:+-"


def tokens(text: str) -> list[str]:
    """Return the stretches of a text that are deleted or moved as one."""
    return _TOKEN.findall(text)


def mutate(script: Script, chance: random.Random) -> Script:
    """Return the script with some of its parts inserted, deleted, swapped or written twice."""
    writer = _Writer(chance)
    parts = tokens(script.text)
    for _ in range(chance.randint(1, 3)):
        at, other = chance.randrange(len(parts) + 1), chance.randrange(len(parts) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            parts.insert(at, writer.pick(_INSERTED))
        elif kind == 1:
            parts.insert(at, writer.atom())
        elif kind == 2:
            del parts[at : at + chance.randint(1, 2)]
        elif kind == 3:
            parts[at:at] = parts[other : other + chance.randint(1, 3)]
        elif max(at, other) < len(parts):
            parts[at], parts[other] = parts[other], parts[at]
    text = "".join(parts)
    return script._replace(text=text) if is_safe(text) else script
