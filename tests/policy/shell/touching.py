"""Random command lines of real programs, and whether one that is permitted touches files outside its project.

Each runs in a tree of its own: `base/project`, where it starts and which its mission covers, beside folders that it
does not cover. Scripts name no absolute path, and climb fewer folders than the tree lies deep (`is_contained`); the
kernel keeps them from changing anything outside the tree as well (`confinement.py`).
"""

import os
import random
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from remit.policy.decide import Decision
from remit.policy.files import LocalFiles
from tests.policy.judging import command
from tests.policy.shell.confinement import confine
from tests.policy.shell.oracle import minimise
from tests.policy.shell.scripts import tokens

__all__ = ["Escape", "FileOracle", "FileScript", "build_file_script", "is_contained"]

_SECRET: Final = "do-not-read-5e1f"
# Real programs that a script may run.
_PROGRAMS: Final = (
    "cat touch rm mkdir ln mv cp find xargs grep head tee tar ls sort wc dirname basename sh bash env".split()
)
_CLIMB: Final = 12
_MAX_CLIMBS: Final = 6
_BATCH: Final = 25
_MOST_RUNS: Final = 20
_TIMEOUT_S: Final = 60
_OLD_NS: Final = 10**18
_FOLDERS: Final = ("project/inner/deep", "outside/inner", "project-secrets", "home")
_FILES: Final = {
    "project/note.txt": "a note\n",
    "project/readme.md": "read me\n",
    "project/inner/a.txt": "a\n",
    "project/inner/deep/b.txt": "b\n",
    "project/names": "../outside/key.txt\ninner/a.txt\n",
    "project/x": "cat ../outside/key.txt\n",
    "outside/key.txt": _SECRET,
    "outside/keyb.txt": _SECRET,
    "outside/inner/a.txt": _SECRET,
    "project-secrets/key.txt": _SECRET,
    "home/key.txt": _SECRET,
}
# What may lie in the project beside that: files, and links with where they lead.
_EXTRAS: Final[tuple[dict[str, str], ...]] = (
    {}, {}, {}, {"-rf": ""}, {"--checkpoint=1": "", "--checkpoint-action=exec=sh x": ""}, {"sp ace.txt": ""},
    {"lnk": "../outside"}, {"inner/lnk": "../../outside"}, {"lnk": "../outside/key.txt"}, {"-n": ""},
    {"lnk": "inner"}, {"sp ..": "/outside/key.txt"}, {"-T": "", "names": ""}, {"--files0-from=names": ""},
    {"-exec": ""}, {"-I": ""}, {"-t": "../outside"}, {"--target-directory=..": ""}, {"--reference=..": ""},
    {"lnk": ".."}, {"a b": "../outside"},
)  # fmt: skip

# The parts of a script. `{v}` is a variable, `{in}` and `{out}` are words.
_VARIABLES: Final = ("x", "d", "f")
_INSIDE: Final = (
    "note.txt", "inner", "inner/a.txt", "./note.txt", "inner/deep", "inner/deep/b.txt", "readme.md", "names",
)  # fmt: skip
_OUTSIDE: Final = (
    "../outside/key.txt", "../outside", "..", "../outside/keyb.txt", "../outside/inner/a.txt",
    "../project-secrets/key.txt", "inner/../../outside/key.txt", "../outside/inner",
)  # fmt: skip
_VALUES: Final = (
    *_INSIDE, *_OUTSIDE, "$PWD", '"$PWD"', '"${{PWD%/*}}"', '"${{PWD%/*}}/outside"', "${{PWD##*/}}", "{{inner,..}}",
    "{{inner,../outside}}", "$(find $PWD -maxdepth 0)", "$(find inner -name a.txt)", "$(ls inner)", "$(pwd)",
    "$(dirname inner/a.txt)", "$(cat names)", "'../outside/key.txt'", "$(echo ../outside/key.txt)", "\"inner\"",
    "${x%%b*}y", "outside/key.txt", "$d", "$x", "'*'", "'note.txt ../outside/key.txt'",
    "('../outside/key.txt' note.txt)", "(note.txt)", "$(( 1 ))", "${{x/inner/..}}", "${{x:-..}}",
)  # fmt: skip
_ASSIGNS: Final = (
    "{v}={value}", "{v}={value}", "{v}={value}", "export {v}={value}", "export {v}={value}", "declare {v}={value}",
    "readonly {v}={value}", "typeset {v}={value}", "printf -v {v} %s {value}", "read {v} <<< {value}",
    "read -r {v} < names", "set -- {value}", "{v}+={value}", "export {v}={{{in},{out}}}",
    "declare -r {v}={{{out},{in}}}", "{v}[0]={value}", "for {v} in {value} {in}; do :; done", ": ${{{v}:={value}}}",
    "mapfile -t {v} < names", "{v}={out}\n: $((1/0)); {v}={in}", "{v}={out}\n: ${{nope?}}; {v}={in}",
    "{v}={out}\nreadonly {v}; {v}={in}", "{v}={out}\n: ${{nope:?}} || {v}={in}",
    "{v}={out}\nif :; then : $((1/0)); fi; {v}={in}", "{v}={out}\nfor k in 1; do : $((1/0)); done; {v}={in}",
    "{v}={out}\nk=$((1/0)) {v}={in}", "{v}={out}\nf() {{ : $((1/0)); }}; f; {v}={in}",
    "{v}={out}\n{{ : $((1/0)); }} ; {v}={in}", "{v}={out}\n(( 1/0 )); {v}={in}", "{v}={out}\nlet 1/0; {v}={in}",
    "{v}={out}\nUID=1; {v}={in}", "{v}={out}\n: ${{!nope}}; {v}={in}", "f() {{ local {v}={value}; cat ${v}; }}; f",
    "unset {v}", "{v}={in}; {v}=$({v}={out}; echo ${v})",
)  # fmt: skip
_MAKES: Final = (
    "mkdir -p 'sp ..'/outside", "touch 'sp ..'/outside/s.txt",
    "mkdir -p 'sp ..'/outside && touch 'sp ..'/outside/key.txt", "touch -- '-rf'", "touch ./-rf",
    "touch -- '--checkpoint=1' '--checkpoint-action=exec=sh x'", "> '-n'",
    "echo > '--checkpoint-action=exec=sh x'; echo > '--checkpoint=1'", "mkdir d2", "mkdir d2; ln -s ../outside d2/o",
    "mkdir d2; ln -s ../outside d2/o; mv d2/o o", "mkdir d2; ln -s ../outside d2/o; mv d2/o inner/o", "ln -s .. up",
    "ln -s inner ok", "mkdir -p d2/d3; ln -s ../../outside d2/d3/o; mv d2/d3 d3", "cp -a lnk l2", "cp -r inner in2",
    "tar cf a.tar inner", "tar xf a.tar", "tar cf a.tar lnk", "echo ../outside/key.txt > names",
    "printf '%s\\n' ../outside/key.txt > names2", "cp names names2", "rm note.txt", "mv lnk inner/lnk",
    "mv inner in3", "mkdir 'a b'; touch 'a b'/c", "touch 'k ../outside/key.txt'",
    "mkdir -p 'k ../outside'; touch 'k ../outside/key.txt'", "cp -P lnk inner/", "ln -s note.txt n2",
    "ln -sf ../outside ok", "ln -s ../outside d2",
    "mkdir inner/d2; ln -s ../../outside inner/d2/o; mv inner/d2/o inner/o", "ln -s {out} {v}l", "ln {in} hard",
    "touch {in}", "rm -rf inner; ln -s ../outside inner", "mkdir d4; cd d4", "cd inner", "cd inner; cd ..", "cd ${v}",
    "mkdir d2; ln -s ../outside d2/o; cp -r d2 d5", "mkdir d2; ln -s ../outside d2/o; tar cf l.tar d2; tar xf l.tar",
    "mv inner ..x", "touch $'new\\nline'", "mkdir -p $'q\\n..'/outside; touch $'q\\n..'/outside/key.txt",
    "mkdir -p 'w ..'; mv inner 'w ..'/outside", "cp -r inner 'c ..'", "set -e", "set -u", "set -f",
)  # fmt: skip
_USES: Final = (
    "cat ${v}", 'cat "${v}"', 'cat "${v}/key.txt"', "cat ${v}/outside/key.txt", "cat ${v}/key.txt",
    'cat "${v}-secrets/key.txt"', "head -n 1 ${v}", "cat *", "cat */*", "cat o/*", "cat ok/*", "cat inner/*",
    "cat d2/*", "cat inner/o/*", "grep -r do .", "grep -r do *", "grep -R do .", "grep -rl do inner", "cat d3/o/*",
    "find . -name '*.txt' | xargs cat", "find . -name s.txt | xargs cat", "find . -name key.txt | xargs cat",
    "find . -type f | xargs cat", "find . -type f -exec cat {{}} +", "find . -name '*.txt' -exec head {{}} \\;",
    "ls | xargs cat", "ls | xargs rm -rf", "xargs cat < names", "xargs -a names cat", "cat $(cat names)",
    "while read f; do cat \"$f\"; done < names", "while read -r {v}; do head ${v}; done < <(ls)", "tar cf a.tar *",
    "tar czf a.tgz .", 'rm -rf "${{PWD%/*}}/outside"', "rm -rf ${v}/outside", "rm -rf ${v}", 'cp "${v}" got',
    "cp ${v} got", "tee -a ${v} < note.txt", "for {v} in *; do cat \"${v}\"; done",
    "for {v} in o/*; do cat ${v}; done", "for {v} in inner/* {in}; do cat \"${v}/key.txt\"; done", "cp -rL . got",
    "cp -r . got", "cp -rL inner got", "ls -R", "ls -L", "ls ${v}",
    "/bin/ls() {{ cat ../outside/key.txt; }}; /bin/ls", "./x() {{ cat {out}; }}; ./x",
    "cat() {{ command cat {out}; }}; cat {in}", "f() {{ cat \"$1\"; }}; f {in}", "f() {{ cat \"$1\"; }}; f ${v}",
    "cat < ${v}", "echo hi > ${v}", ": > \"${v}\"", "echo hi >> \"${v}\"", "cat <<< $(cat ${v})", "mv ${v} moved",
    "mv * inner", "cat \"${{{v}%b*}}b.txt\"", "cat \"${{{v}%%b*}}b.txt\"", "cat \"${{{v}%/*}}/key.txt\"",
    "cat \"${{{v}##*/}}\"", "cat ${{{v}%/*}}/key.txt", "cat ${{{v}/note.txt/key.txt}}", "cat \"${{{v}/in/out}}\"",
    "cat ${{{v}:-{in}}}", "cat ${{{v}:+{in}}}", "cat ${{!{v}}}", "cat ${{{v}[0]}}", "cat \"${{{v}[@]}}\"",
    "cat \"$1\"", "cat \"$@\"", "cat ${{{v},,}}", "cat {{{in},${v}}}", "cat ${v}{{,.bak}}", "cat {in} {in}",
    "rm -f {in}", "wc -l *", "sort *", "cat -- *", "rm *", "rm -r inner/*", "chmod 644 *", "cat ${v}*",
    "cat \"${v}\"*", "eval cat ${v}", "eval \"cat ${v}\"", "trap 'cat ${v}' EXIT", "cat $(echo ${v})",
    "cat `echo {in}`", "cat up/outside/*", "ls up", "cat l2/*", "cat got/*", "find -L . -name key.txt",
    "find . -follow -name '*.txt'", "find ok/ -name '*.txt' | xargs cat", "find o/ -type f", "grep do ok/*", "ls */",
    "ls -d */", "cat d5/o/*", "cat in3/*", "head inner/*/*", "cp * inner", "cp -t inner *", "ln -s * inner",
    "find * -name key.txt", "xargs -I N cat N < names", "xargs -0 cat < names", "sort names | xargs cat",
    "cat names | xargs -n 1 head", "ls -1 | while read {v}; do cat \"${v}\"; done", "find . -print0 | xargs -0 cat",
    "find . -type f -print0 | xargs -0 cat", "ls ${v}/*/key.txt", "tar cf a.tar inner", "tar xf l.tar",
    "[ -f ${v} ] && echo yes", "[[ -d ${v} ]]", "test -e \"${v}\"", "cat ~/key.txt", "cat \"$HOME\"/key.txt",
    "cat '$HOME'", "cat *.txt", "cat [nr]*", "cat ?*", "tee {in} < {in}", "touch *",
)  # fmt: skip

# Parts that go together: names like options and wildcards, names of two words and what splits, links and what follows.
_OPTION_NAMES: Final[tuple[dict[str, str], ...]] = (
    {"--checkpoint=1": "", "--checkpoint-action=exec=sh x": ""}, {"--target-directory=..": ""}, {"-t": "../outside"},
    {"--files0-from=names": ""}, {"-T": "", "names": ""}, {"--reference=..": ""}, {"-rf": ""}, {"-Tnames": ""},
    {"-L": "", "lnk": "../outside"}, {"-r": "", "lnk": "../outside"}, {"-h": "", "lnk": "../outside"},
    {"--dereference-recursive": "", "lnk": "../outside"},
)  # fmt: skip
_OPTION_MAKES: Final = (
    "touch -- '--checkpoint=1' '--checkpoint-action=exec=sh x'",
    "touch ./--checkpoint=1 './--checkpoint-action=exec=sh x'",
    "> '--checkpoint=1'; > '--checkpoint-action=exec=sh x'", "touch -- -Tnames", "mkdir -- --target-directory=..",
    "touch -- --files0-from=names", "cp note.txt ./--checkpoint=1; cp note.txt './--checkpoint-action=exec=sh x'",
    "mv note.txt ./-Tnames", "ln -s note.txt ./--target-directory=..", "ln -s ../outside lnk; touch -- -h",
    "ln -s ../outside lnk; touch ./-L", "mkdir n2; cd n2; touch -- -Tnames; cd ..; mv n2/* .",
)  # fmt: skip
_OPTION_USES: Final = (
    "tar cf a.tar *", "tar cf a.tar -C . *", "tar -cf a.tar -- *", "tar cf a.tar ./*", "cp * inner", "cp -r * inner",
    "mv * inner", "sort *", "wc -l *", "touch *", "cat *", "rm *", "chmod 644 *", "ln -s * inner",
    "find * -name key.txt", "head *", "grep do *", "grep do * inner", "ls *", "tee * < x", "ls -d -- *",
    "tar cvf a.tar --exclude=b *", "for {v} in *; do cat $x; done", "for {v} in *; do tar cf a.tar \"${v}\" x; done",
    "echo * | xargs tar cf a.tar", "ls | xargs tar cf a.tar",
)  # fmt: skip
_ODD_MAKES: Final = (
    "mkdir -p 'sp ..'/outside; touch 'sp ..'/outside/key.txt",
    "mkdir -p 'k ../outside'; touch 'k ../outside/key.txt'",
    "mkdir -p $'q\\n..'/outside; touch $'q\\n..'/outside/key.txt", "mkdir 'w ..'; mv inner 'w ..'/outside",
    "cp -r inner 'c ..'", "mkdir -p \"d'..\"/outside; touch \"d'..\"/outside/key.txt\"'\"",
    "d='s ..'; mkdir -p \"$d/outside\"; touch \"$d/outside/key.txt\"",
    "mkdir -p s\\ ../outside; > s\\ ../outside/key.txt", "echo hi > 'k ..'",
    "mkdir 'sp ..' && cp -r inner 'sp ..'/outside", "tar cf s.tar inner; mkdir 's ..'; tar xf s.tar -C 's ..'",
    "for e in 'sp ..'; do mkdir -p \"$e/outside\"; touch \"$e/outside/key.txt\"; done", "ln -s inner 'l ..'",
    "mkdir -p a/'b ..'/outside; touch a/'b ..'/outside/key.txt; mv a/'b ..' .",
)  # fmt: skip
_SPLIT_USES: Final = (
    "find . -name key.txt | xargs cat", "find . -type f | xargs cat", "find . | xargs cat", "ls | xargs ls",
    "ls */* | xargs cat", "find . -type d | xargs ls", "grep -rl do . | xargs cat", "cat $(find . -name key.txt)",
    "for {v} in $(find . -name key.txt); do cat ${v}; done", "for {v} in $(ls); do cat ${v}; done",
    "find . -name '*.txt' | xargs -n 1 rm -f", "ls | xargs rm -rf",
    "find . -name key.txt | while read {v}; do cat ${v}; done", "find . -name key.txt | xargs -I N cat N",
    "find . -name key.txt -print0 | xargs -0 cat", "find . -name key.txt -exec cat {{}} +",
    "ls | while read -r {v}; do cat ${v}; done", "for {v} in *; do cat ${v}; done", "for {v} in */; do ls ${v}; done",
    "{v}=$(ls); cat ${v}", "{v}=$(echo *); ls ${v}", "set -- *; ls $1", "find . -type f | sort | xargs head",
    "find . -type f | head -n 3 | xargs cat", "tar cf a.tar $(find . -name key.txt)", "{v}=(*); cat ${{{v}[@]}}",
    "echo */ | xargs ls", "printf '%s\\n' * | xargs ls", "ls > names2; xargs ls < names2",
)  # fmt: skip
_LINK_MAKES: Final = (
    "mkdir d2; ln -s ../outside d2/o; mv d2/o o", "mkdir d2; ln -s ../outside d2/o; mv d2/o inner/o",
    "mkdir -p d2/d3; ln -s ../../outside d2/d3/o; mv d2/d3 d3", "ln -s ../outside o; mv o o2",
    "rm -rf inner; ln -s ../outside inner", "rm note.txt; ln -s ../outside/key.txt note.txt",
    "ln -sf ../outside/key.txt note.txt", "mkdir d2; ln -s ../outside d2/o; cp -r d2 d5",
    "mv inner in3; ln -s ../outside inner", "mkdir d2; ln -s ../outside d2/o; cp -a d2/o o",
    "mkdir d2; ln -s ../outside d2/o; cp -P d2/o o",
    "mkdir d2; ln -s ../outside d2/o; tar cf l.tar -C d2 o; tar xf l.tar", "ln -s . o; mv o inner/o",
    "ln -s inner/deep o; mv o ..x", "ln -s ../outside inner/o", "mkdir d2; ln -s ../outside d2/o; mv d2/* .",
    "mkdir d2; ln -s ../outside d2/o; mv d2 inner/d2", "ln -s deep/../.. inner/o", "ln -sT ../outside o",
    "ln -s ../outside .", "cp -rs ../outside o", "mkdir d2; cd d2; ln -s ../outside o; cd ..; mv d2/o o",
    "d=o; mkdir d2; ln -s ../outside d2/$d; mv d2/$d $d",
    "ln note.txt inner/n2; rm note.txt; ln -s ../outside/key.txt note.txt",
    "mkdir d2; ln -s ../outside d2/o; mv -t . d2/o",
)  # fmt: skip
_LINK_USES: Final = (
    "cat o/*", "cat o/key.txt", "ls o/", "ls o", "cat */key.txt", "cat inner/o/*", "cat inner/o/key.txt",
    "cat inner/*", "cat inner/key.txt", "grep -r do .", "grep -R do .", "grep -r do o/", "grep -r do inner/",
    "find -L . -name key.txt", "find o/ -type f", "find o/", "cat note.txt", "cat *", "cat n*", "rm -r inner/*",
    "rm -rf inner/", "rm -rf o/*", "echo hi > note.txt", "echo hi > inner/new", "touch o/new", "cp note.txt o",
    "cp note.txt inner", "cp note.txt o/", "mv note.txt inner", "mv note.txt o", "mkdir o/new", "mkdir inner/new",
    "tar cf a.tar inner/", "tar chf a.tar .", "cp -r inner/ got", "cp -rL . got", "cp -r inner/. got", "cd o && ls",
    "cd inner && cat *", "cd inner; cat *; cd ..", "cat d3/o/*", "cat d5/o/*", "cat d5/*/*", "cat o2/*", "cat ..x/*",
    "ls -R inner/", "ls inner", "ls -L", "ls */", "for {v} in o/*; do cat ${v}; done",
    "for {v} in */*; do cat ${v}; done", "for {v} in inner/*; do head ${v}; done", "find . -name '*.txt' | xargs cat",
    "find inner/ -name '*.txt' | xargs cat", "find . -follow", "find . -type f -exec cat {{}} +",
    "{v}=inner; cat ${v}/*", "{v}=o; cat ${v}/key.txt", "wc -l */*", "cat outside/*", "ls outside/",
    "tee inner/new < note.txt", "cat inner/d2/o/*", "head inner/o/*", "rm inner/*", "rm -f note.txt", "sort inner/*",
    "xargs cat < note.txt", "tar xf l.tar; cat o/*", "ln -s x inner/new", "ln -s x o/new",
    "[ -f inner/key.txt ] && cat inner/key.txt", "cat < note.txt", "cat < inner/key.txt", "cat ./o/../key.txt",
    "ls o/..", "cat inner/../outside/key.txt", "cat deep/*", "cd o; cat ../note.txt",
)  # fmt: skip
# Lists that are joined, here-documents in substitutions, programs that are not found, wildcards that only list.
_UNSETTLED: Final = (
    "set -- {in} {out}; {v}=$@; cat ${v}", 'set -- {in} {out}; {v}="$@"; cat ${v}', "set -- cat {out}; {v}=$@; ${v}",
    'f() {{ {v}="$@"; ${v}; }}; f cat {out}', "{v}=({in} {out}); d=${{{v}[@]}}; cat $d",
    '{v}=(cat {out}); sh <<< "${{{v}[@]}}"', 'set -- {in} {out}; cat ${{1+"$@"}}',
    "set -- {in} {out}; xargs cat <<< $@",
    "set -- cat {out}; sh <<E\n$@\nE", 'sh -c \'v="$@"; $v\' _ cat {out}', 'set -- {in} {out}; cat "${{nope:-$@}}"',
    'set -- {in} {out}; export {v}="$@"; cat ${v}', "{v}=$(cat <<'E'\nE) && cat {out}\nE\n)",
    "echo $(cat <<'E'\nE cat {out})\nE\n)", 'echo "$(cat <<E\nmsg\nE cat {out})"\nE\n)"',
    'unset PATH; cd "$(dirname inner/a.txt)"; read y < ../outside/key.txt',
    'f() {{ local PATH; cd "$(dirname inner/a.txt)"; read y < ../outside/key.txt; }}; f',
    '((PATH=0)); cd "$(dirname inner/a.txt)"; read y < ../outside/key.txt',
    "ulimit -t 0; cd \"$(basename inner)\"; read y < ../outside/key.txt",
    "ulimit -Sn 3; cd $(echo inner); ulimit -Sn 99; cat ../outside/key.txt",
    "{v}=inner/; {v}= export {v}; cat ${{{v}}}../outside/key.txt",
    "declare -p {v}=inner/; cat ${{{v}}}../outside/key.txt",
    "{v}={in}0{out}; : ${{{v}:1?IFS=0:0}}; cat ${v}", "{v}={in}0{out}; : ${{@:IFS=0}}; cat ${v}",
    "FUNCNEST=1\nf() {{ cd inner; }}; g() {{ f; }}\ng\ncat ../outside/key.txt",
    "echo ../outside/*", "echo {out}/*", "for {v} in ../outside/*; do :; done", "{v}=(../outside/*)",
    "set -- ../outside/k*",
    "echo ~/key.txt*", "printf %s ../*", "ln -s ../outside o; echo o/*", "echo */*",
    "echo lnk/*",
    "for {v} in inner/*/*; do :; done", "echo inner/* */", "{v}=${v}; echo ${v}*", "cd inner; echo ../*",
    "ls ../outsid?",
)  # fmt: skip
# For a shell that is not bash.
_OTHER_SHELLS: Final = (
    "cd inner &>/dev/null; cat ../outside/key.txt", "cd inner && ls &>/dev/null; cat ../outside/key.txt",
    "cd {{inner,}}; cat ../outside/key.txt", "set -- {{a,b}} {out}; cat $2", 'cd $"inner"; cat ../outside/key.txt',
    "cd $(echo {{inner,}}); cat ../outside/key.txt", "f() {{ cat $2; }}; f {{{in},{in}}} {out}",
    "set -- {out}; set -- {in} &>/dev/null; cat $1", "set -- {in} 12>/dev/null {out}; cat $2",
    "exit &>/dev/null; cat {out}",
    "{v}={out}; {v}={in} :; cat ${v}", "cat {in} &>/dev/null; cat {in}", "cat {{{in},{in}}}",
    "cat {in} &>/dev/null {out}",
    "d={out}; x=\"a d={in}\"; export {v}=$x; cat $d", "cd {{i..i}}nner; cat ../outside/key.txt",
)  # fmt: skip


class FileScript(NamedTuple):
    """A script, and what lies in its project beside the usual: files by their text, links by where they lead."""

    text: str
    extras: dict[str, str]


class Escape(NamedTuple):
    """A script that was permitted and touched files outside its project."""

    script: FileScript
    touched: tuple[str, ...]

    def __str__(self) -> str:
        """Return the script and what it touched, for a person."""
        extras = f"\n  beside {self.script.extras}" if self.script.extras else ""
        return f"permitted, and touches {', '.join(self.touched)}{extras}\n  script {self.script.text!r}"


def build_file_script(seed: int) -> FileScript:
    """Return the script of a seed."""
    chance = random.Random(seed)
    variable = chance.choice(_VARIABLES)
    extras, forms = _choose_parts(chance)
    is_other = chance.random() < 0.08
    if is_other:
        forms = [*forms[:-1], chance.choice(_OTHER_SHELLS)]
    text = ""
    for form in forms:
        words = {"in": chance.choice(_INSIDE), "out": chance.choice(_OUTSIDE), "v": variable}
        value = chance.choice(_VALUES).replace("{{", "{").replace("}}", "}")
        text += (chance.choice(("; ", "\n", "\n", " && ")) if text else "") + form.format(**words, value=value)
    if is_other:
        text = f"sh -c {shlex.quote(text)}"
    return FileScript(text, extras) if is_contained(text) else FileScript("cat note.txt", {})


def _choose_parts(chance: random.Random) -> tuple[dict[str, str], list[str]]:
    """Return what lies in the project, and the parts of a script: any, or parts that go together."""
    kind = chance.random()
    if kind < 0.12:
        use = chance.choice(_OPTION_USES)
        return ({}, [chance.choice(_OPTION_MAKES), use]) if kind < 0.06 else (chance.choice(_OPTION_NAMES), [use])
    if kind < 0.5:
        makes, uses = (_ODD_MAKES, _SPLIT_USES) if kind < 0.28 else (_LINK_MAKES, _LINK_USES)
        return chance.choice(_EXTRAS[:3]), [chance.choice(makes), chance.choice(uses)]
    if kind < 0.6:
        return chance.choice(_EXTRAS), [chance.choice(_ASSIGNS), chance.choice(_UNSETTLED)]
    before = [chance.choice(_ASSIGNS if chance.random() < 0.6 else _MAKES) for _ in range(chance.choice((0, 1, 1, 2)))]
    made = [chance.choice(_MAKES) for _ in range(chance.choice((0, 0, 1)))]
    return chance.choice(_EXTRAS), [*before, *made, *(chance.choice(_USES) for _ in range(chance.choice((1, 1, 2))))]


_KNOWN: Final = re.compile(r"%/\*(?=\})|##\*/(?=\})|/dev/null\b|/bin/ls\b|(?<=\$\{)\w+/\w+[/.]")
# At the start of a word, or after an expansion, which may come to nothing. What may follow one is on no machine.
_MAYBE_ROOT: Final = re.compile(
    r"(?:\A|[^\w.*?\]-]|\$\w+)/(?!outside\b|key\.txt\b|inner\b|\*/key\.txt)|(?:\A|[\s;&|(<>=`,{:])/"
)


def is_contained(text: str) -> bool:
    """Tell whether no word of a script is an absolute path, and the script climbs fewer folders than there are."""
    return _MAYBE_ROOT.search(_KNOWN.sub("", text)) is None and text.count("..") <= _MAX_CLIMBS


def _find_programs(folder: Path) -> None:
    for name in _PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            (folder / name).symlink_to(path)


class _Tree:
    """The files of one script."""

    def __init__(self, base: Path, extras: dict[str, str]) -> None:
        self.base = base
        self.project = str(base / "project")
        self.printed = base / "printed"
        for folder in _FOLDERS:
            os.makedirs(f"{base}/{folder}")  # noqa: PTH103 - this is done for every script
        for name, text in _FILES.items():
            with open(f"{base}/{name}", "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(text)
        for name, text in extras.items():
            path = base / "project" / name
            if text.startswith(".."):
                path.symlink_to(text)
            elif text.startswith("/"):
                path.mkdir()
                (base / f"project/{name}{text}").parent.mkdir(parents=True, exist_ok=True)
                (base / f"project/{name}{text}").write_text("inside\n", encoding="utf-8")
            elif text:
                path.symlink_to(text)
            elif not path.exists():
                path.touch()

    def age(self) -> None:
        """Make everything outside the project old, so that reading it shows."""
        self._paths = list(self._outside())
        self._make_old()
        self._before = self._state()
        # Listing a folder reads it.
        self._make_old()

    def _make_old(self) -> None:
        for path in self._paths:
            os.utime(path, ns=(_OLD_NS, _OLD_NS + 1))

    def _outside(self) -> Iterator[str]:
        yield str(self.base)
        for folder in ("outside", "project-secrets", "home"):
            for where, _, files in os.walk(self.base / folder):
                yield where
                yield from (f"{where}/{name}" for name in files)

    def _state(self) -> dict[str, tuple[object, ...]]:
        # The project may remove itself: it is in its own scope.
        names = {path.name for path in self.base.glob("*")} - {"project"}
        states: dict[str, tuple[object, ...]] = {str(self.base): tuple(sorted(names))}
        for path in self._outside():
            found = _look(path) if path not in states else None
            if found is not None:
                states[path] = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_nlink)
        return states

    def touched(self) -> tuple[str, ...]:
        """Return what outside the project was read or changed since it was made old."""
        read = [path for path in self._paths if (found := _look(path)) and found.st_atime_ns != _OLD_NS]
        after = self._state()
        changed = [path for path in {*after, *self._before} if after.get(path) != self._before.get(path)]
        places = {os.path.relpath(path, self.base) for path in (*read, *changed)}
        printed = self.printed.exists() and _SECRET.encode() in self.printed.read_bytes()
        return (*sorted(places), *(["a secret that it prints"] if printed else []))


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


class FileOracle:
    """Judges scripts, runs those that are permitted, and looks at what they touched."""

    def __init__(self, bash: str, folder: Path) -> None:
        self.bash = bash
        self.folder = folder.joinpath(*"n" * _CLIMB)
        self.folder.mkdir(parents=True)
        self.programs = folder / "programs"
        self.programs.mkdir()
        _find_programs(self.programs)
        self.figures: Counter[str] = Counter()
        self._made = 0

    def check(self, scripts: Sequence[FileScript]) -> list[Escape]:
        """Return the scripts that are permitted and touch files outside their project."""
        escapes: list[Escape] = []
        for start in range(0, len(scripts), _BATCH):
            escapes.extend(self._check_batch(scripts[start : start + _BATCH]))
        return [escape for escape in escapes if self._touches(escape.script)]

    def _touches(self, script: FileScript) -> bool:
        """Tell whether it is the script that touches files outside: others may look into all folders of the machine.

        So it is run again by itself, until nobody has looked into a tree beside its own meanwhile.
        """
        beside = self._plant(FileScript("", {}))
        for _ in range(_MOST_RUNS):
            beside.age()
            if not self.run(script):
                return False
            if not beside.touched():
                break
        return True

    def run(self, script: FileScript) -> tuple[str, ...]:
        """Return what a script touches outside its project, whether it is permitted or not."""
        return self.run_all([script])[0]

    def run_all(self, scripts: Sequence[FileScript]) -> list[tuple[str, ...]]:
        """Return what each of the scripts touches outside its project, whether it is permitted or not."""
        touched: list[tuple[str, ...]] = []
        for start in range(0, len(scripts), _BATCH):
            planted = [(script, self._plant(script)) for script in scripts[start : start + _BATCH]]
            self._run(planted)
            touched.extend(tree.touched() for _, tree in planted)
            for _, tree in planted:
                shutil.rmtree(tree.base, ignore_errors=True)
        return touched

    def _check_batch(self, scripts: Sequence[FileScript]) -> list[Escape]:
        permitted: list[tuple[FileScript, _Tree]] = []
        spare: dict[str, _Tree] = {}
        for script in scripts:
            # Judging changes nothing: a tree in which nothing ran is as good as a new one.
            tree = spare.pop(repr(script.extras), None) or self._plant(script)
            if _judge(script, tree).permits:
                permitted.append((script, tree))
            else:
                spare[repr(script.extras)] = tree
        self.figures.update(scripts=len(scripts), permitted=len(permitted))
        self._run(permitted)
        escapes = [Escape(script, touched) for script, tree in permitted if (touched := tree.touched())]
        for tree in (*spare.values(), *(tree for _, tree in permitted)):
            shutil.rmtree(tree.base, ignore_errors=True)
        return escapes

    def _plant(self, script: FileScript) -> _Tree:
        self._made += 1
        return _Tree(self.folder / f"base{self._made}", script.extras)

    def _run(self, permitted: Sequence[tuple[FileScript, _Tree]]) -> None:
        lines = ["ulimit -t 5\n"]
        for script, tree in permitted:
            assert is_contained(script.text)
            tree.printed.touch()
            lines.append(
                f"( cd {shlex.quote(tree.project)} && HOME={shlex.quote(str(tree.base / 'home'))} "
                f"PATH={shlex.quote(str(self.programs))} exec {self.bash} -c {shlex.quote(script.text)} ) "
                f">{shlex.quote(str(tree.printed))} 2>&1 </dev/null\n"
            )
        for _, tree in permitted:
            tree.age()
        subprocess.run(
            [self.bash, "-c", "".join(lines)],
            cwd=self.folder, env={"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False,
            preexec_fn=lambda: confine(str(self.folder)),
        )  # fmt: skip

    def minimise(self, escape: Escape) -> Escape:
        """Return the escape with as little of its script as still escapes."""
        smallest = escape

        def escapes(text: str, extras: dict[str, str]) -> bool:
            nonlocal smallest
            found = self._check_batch([FileScript(text, extras)]) if is_contained(text) else []
            if found:
                smallest = found[0]
            return bool(found)

        if escape.script.extras:
            escapes(escape.script.text, {})
        extras = smallest.script.extras
        minimise(tokens(escape.script.text), lambda text: escapes(text, extras))
        return smallest


def _judge(script: FileScript, tree: _Tree) -> Decision:
    files = LocalFiles(str(tree.base / "home"))
    decision = command(script.text, files=files, scope=(tree.project,), cwd=tree.project)
    # Code of the project may do anything, and only a sandbox bounds it: it is not run here.
    return decision._replace(decision="DENY") if decision.action.runs_code else decision
