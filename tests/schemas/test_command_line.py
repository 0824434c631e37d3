"""Command lines: a table of attacks, and what a real bash starts when it is given texts made by a grammar."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookbus_schemas.command_line import CommandLine, parse

CLEAR: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("ls", ("ls",), ()),
    ("ls -la | grep 'x y' > out.txt 2>&1", ("ls -la", "grep 'x y'"), ("out.txt",)),
    ("a && b; c & d", ("a", "b", "c", "d"), ()),
    ("'l's \"x\" ; l\\s", ('ls "x"', "ls"), ()),
    ("X=1 ls", ("X=1 ls", "ls"), ()),
    ("A=1", ("A=1",), ()),
    ("A=1 B=$(q)", ("A=1 B=$(q)", "q"), ()),
    ("ls >a b", ("ls b",), ("a",)),
    ("> f", ("> f",), ("f",)),
    ('echo $(a `b`) "$(c)"', ('echo $(a `b`) "$(c)"', "a `b`", "b", "c"), ()),
    ("bash -c 'rm x; ls'", ("bash -c 'rm x; ls'", "rm x", "ls"), ()),
    ("bash <<'E'\nrm x\nE\n", ("bash", "rm x"), ()),
    ("cat <<E\n$(y) z\nE\n", ("cat", "y"), ()),
    ("cat <<'E' >f\n`y`\nE\nls", ("cat", "ls"), ("f",)),
    ("eval 'a;b'", ("eval 'a;b'", "a", "b"), ()),
    ("trap 'x' EXIT", ("trap 'x' EXIT", "x"), ()),
    ("time -p ls", ("time -p ls", "ls"), ()),
    ("coproc ls", ("coproc ls", "ls"), ()),
    ("for x in 1 2; do a $x; done", ("a $x",), ()),
    ("if [ -f x ]; then b; fi", ("[ -f x ]", "b"), ()),
    ("[[ $a == b* ]] && [[ -f c ]] && d", ("d",), ()),
    ("((1+1))", (), ()),
    ("echo ${x:-$(y)} ${x}", ("echo ${x:-$(y)} ${x}", "y"), ()),
    ("case x in a) c;; *) d;; esac", ("c", "d"), ()),
    ("f() { ls; }; f", ("ls", "f"), ()),
    ("function f { ls; }", ("ls",), ()),
    ("{ a; } > b", ("a",), ("b",)),
    (
        "git commit -m \"$(cat <<'EOF'\nFix: it's `x`\n\nEOF\n)\"",
        ("git commit -m \"$(cat <<'EOF'\nFix: it's `x`\n\nEOF\n)\"", "cat"),
        (),
    ),
    ("find . -name '*.c' -exec rm {} \\;", ("find . -name '*.c' -exec rm {} \\;",), ()),
    ("ls \\\n  -l", ("ls -l",), ()),
    ("a #b\n#c", ("a",), ()),
    ("", (), ()),
    ("# x", (), ()),
    ('while read x; do echo "$x"; done < f', ("read x", 'echo "$x"'), ("f",)),
    ("! a | b", ("a", "b"), ()),
    ("(a; b)", ("a", "b"), ()),
    ("diff <(a) >(b)", ("diff <(a) >(b)", "a", "b"), ()),
    ("sh <<<'rm x' y", ("sh y",), ()),
    ('echo "a\n b"', ('echo "a\n b"',), ()),
    ("select x in a; do b; done", ("b",), ()),
    ("until a; do b; done", ("a", "b"), ()),
    ("<x ls", ("ls",), ("x",)),
    ("2>&1 ls", ("ls",), ()),
    ("a ||\nb", ("a", "b"), ()),
    ("export X=1 Y", ("export X=1 Y",), ()),
    ("ls >&- x", ("ls x",), ()),
    ("cat <<-E\n\tx\n\tE\n", ("cat",), ()),
    ("sleep 1 & wait", ("sleep 1", "wait"), ()),
    ('echo "$x y" z', ('echo "$x y" z',), ()),
    ("ls;", ("ls",), ()),
    ("if a; then b; elif c; then d; else e; fi", ("a", "b", "c", "d", "e"), ()),
    (
        "echo $'a' \"$@\" $? ${a[@]} ${#x} ${x%.c} ${x//a/b}",
        ("echo $'a' \"$@\" $? ${a[@]} ${#x} ${x%.c} ${x//a/b}",),
        (),
    ),
    ("awk '{print $1}' f | sort -u", ("awk '{print $1}' f", "sort -u"), ()),
    ("echo 'it'\\''s'", ("echo 'it'\\''s'",), ()),
    ("cat f | sh", ("cat f", "sh"), ()),
    ("set -euo pipefail; ls", ("set -euo pipefail", "ls"), ()),
    ("curl -s http://x/?a=1&b=2", ("curl -s http://x/?a=1", "b=2"), ()),
    ("echo é", ("echo é",), ()),
    ("a=(1 2)", ("a=(1 2)",), ()),
    ("cd x && python3 -m pytest -q 2>&1 | tail -5", ("cd x", "python3 -m pytest -q", "tail -5"), ()),
    ("a | { b; }", ("a", "b"), ()),
    ("a|b", ("a", "b"), ()),
    ("a;b&", ("a", "b"), ()),
    ("a `b`", ("a `b`", "b"), ()),
    ('echo ${x:-"$(rm)"}', ('echo ${x:-"$(rm)"}', "rm"), ()),
    ("echo ${x:1:2}", ("echo ${x:1:2}",), ()),
    ("[[ a == $(b) ]]", ("b",), ()),
    ("x[1]=2", ("x[1]=2",), ()),
    ("time -p", ("time -p",), ()),
    ("case x in (a) b;& c) d;;& *) e; esac", ("b", "d", "e"), ()),
    ("case $(x) in a) b;; esac", ("x", "b"), ()),
    ("'if' x", ("if x",), ()),
    ("\\if x", ("if x",), ()),
    ("exec 3>f", ("exec",), ("f",)),
    ("ls &>f", ("ls",), ("f",)),
    ("ls &>>f", ("ls",), ("f",)),
    ("ls >|f", ("ls",), ("f",)),
    ("ls <&3", ("ls",), ()),
    ("ls >&f", ("ls",), ("f",)),
    ("ls > >(rm)", ("ls", "rm"), ()),
    ("ls < <(rm)", ("ls", "rm"), ()),
    ("bash -c", ("bash -c",), ()),
    ("bash -ec 'a'", ("bash -ec 'a'", "a"), ()),
    ("bash -o pipefail -c 'a'", ("bash -o pipefail -c 'a'", "a"), ()),
    ("bash -c -- 'a'", ("bash -c -- 'a'", "a"), ()),
    ("/bin/bash -c 'a'", ("/bin/bash -c 'a'", "a"), ()),
    ("eval a b", ("eval a b", "a b"), ()),
    ("eval", ("eval",), ()),
    ("eval -- 'a'", ("eval -- 'a'", "a"), ()),
    ("trap -- 'a' EXIT", ("trap -- 'a' EXIT", "a"), ()),
    ("trap - INT", ("trap - INT",), ()),
    ("trap", ("trap",), ()),
    ("set -e", ("set -e",), ()),
    ("env X=1 rm", ("env X=1 rm",), ()),
    ("sudo rm", ("sudo rm",), ()),
    ("xargs rm", ("xargs rm",), ()),
    ("find . -exec rm ;", ("find . -exec rm",), ()),
    ("cat <<E | sh\nrm x\nE\n", ("cat", "sh", "rm x"), ()),
    ("{ sh; } <<'E'\nrm\nE\n", ("sh", "rm"), ()),
    ("env sh <<'E'\nrm\nE\n", ("env sh", "rm"), ()),
    ('cat <<"E"\n$(rm)\nE\n', ("cat",), ()),
    ("cat <<\\E\n$(rm)\nE\n", ("cat",), ()),
    ("cat <<E && rm\nx\nE\n", ("cat", "rm"), ()),
    ("cat <<-E\n\tx\n\tE\nrm", ("cat", "rm"), ()),
    ("a\n\n\nb", ("a", "b"), ()),
    ("\ta\t", ("a",), ()),
    ("a;;b", ("a", "b"), ()),
    ("$'rm' x", ("rm x",), ()),
    ("a=b=c d", ("a=b=c d", "d"), ()),
    ("X+=1 a", ("X+=1 a", "a"), ()),
    ("export PATH=/x", ("export PATH=/x",), ()),
    ("a=1 b=2 c", ("a=1 b=2 c", "c"), ()),
    ("unset x", ("unset x",), ()),
    ("> a > b", ("> a > b",), ("a", "b")),
    ("> a b c", ("b c",), ("a",)),
    ("ls -l 2>&1 >/dev/null", ("ls -l",), ("/dev/null",)),
    ("# a\nb", ("b",), ()),
    ("a # b\\\nc", ("a", "c"), ()),
    ("echo a#b", ("echo a#b",), ()),
    ("if a\nthen\nb\nfi\n", ("a", "b"), ()),
    ("while :; do a; break; done", (":", "a", "break"), ()),
    ("a() { b; } > c", ("b",), ("c",)),
    ("a () (b)", ("b",), ()),
    ("echo {a,b}", ("echo {a,b}",), ()),
    ("echo $[1+1]", ("echo $[1+1]",), ()),
    ("echo $((1+1))", ("echo $((1+1))",), ()),
    ("((1<2)) && a", ("a",), ()),
    ('echo "a$"', ('echo "a$"',), ()),
    ('echo "$$(a)"', ('echo "$$(a)"',), ()),
    ("echo $", ("echo $",), ()),
    ('[ "$(a)" = b ]', ('[ "$(a)" = b ]', "a"), ()),
    ("a && (b || c) | d &", ("a", "b", "c", "d"), ()),
    ("bash -c \"bash -c 'a'\"", ("bash -c \"bash -c 'a'\"", "bash -c 'a'", "a"), ()),
    ("select x; do a; done", ("a",), ()),
    ("ls 'a\nb'", ("ls 'a\nb'",), ()),
    ("[ 'a  b' = c ]", ("[ 'a  b' = c ]",), ()),
    ("ls \\\n| cat", ("ls", "cat"), ()),
    ("a $(b; c | d)", ("a $(b; c | d)", "b", "c", "d"), ()),
    ("a $(b # c\n)", ("a $(b # c\n)", "b"), ()),
    ("a $(cat <<E\nx\nE\n)", ("a $(cat <<E\nx\nE\n)", "cat"), ()),
    ("sh x <<'E'\nrm\nE\n", ("sh x",), ()),
    ("source /dev/stdin <<<'rm x'", ("source /dev/stdin", "rm x"), ()),
    ("ls >a >b c d >e f", ("ls c d f",), ("a", "b", "e")),
    ("ls a2>b", ("ls a2",), ("b",)),
    ("ls 2>b c", ("ls c",), ("b",)),
    ("time", ("time",), ()),
    ("nohup a &", ("nohup a",), ()),
    ("a |& b", ("a", "b"), ()),
    ("echo ${x/a/$(b)}", ("echo ${x/a/$(b)}", "b"), ()),
    ("x=`a` y=$(b) c", ("x=`a` y=$(b) c", "c", "a", "b"), ()),
    ("function f() { a; }; f x", ("a", "f x"), ()),
    ("ls=1 rm", ("ls=1 rm", "rm"), ()),
    ("python3 - <<'E'\nx\nE", ("python3 -",), ()),
    ("sh - <<'E'\nrm x\nE", ("sh -", "rm x"), ()),
    ("which bash sh", ("which bash sh",), ()),
    ("timeout 5 bash -c 'a > f'", ("timeout 5 bash -c 'a > f'", "a"), ("f",)),
    ("[ $? -eq 0 ] && a", ("[ $? -eq 0 ]", "a"), ()),
    ('[ -n "$x" ] && test "$y" != "$z"', ('[ -n "$x" ]', 'test "$y" != "$z"'), ()),
    ("printf '%s' \"$x\"", ("printf '%s' \"$x\"",), ()),
    ("mapfile -t x < f", ("mapfile -t x",), ("f",)),
    ("declare -a x=(1 $y) z=a", ("declare -a x=(1 $y) z=a",), ()),
    ("export X=$Y", ("export X=$Y",), ()),
]
UNCLEAR = [
    ("$X", "which program is started is known only when it runs"),
    ("ls > $x", "which file a redirection opens is known only when it runs"),
    ("$(x)", "which program is started is known only when it runs"),
    ('sh -c "a $X"', "whether a shell is given commands is known only when it runs"),
    ('sh -c "a\\$X"', "which program is started is known only when it runs"),
    ("cat <<E\n`y`\nE\n", "a text in double quotes or a here-document may hold more than is seen"),
    ("for PATH in x; do a; done", "a loop sets a variable that may mean something to programs"),
    ("echo $((x))", "arithmetic is only read when it holds nothing but numbers"),
    ("echo ${x@P}", "this form of parameter expansion is not read"),
    ("ls\\\n-l", "there is something between two words that is no plain space"),
    ("echo a\rb", "there is something between two words that is no plain space"),
    ("a\xa0b", "the name of a command holds unusual characters"),
    ("l\\\ns x", "there is something between two words that is no plain space"),
    ("a &\\\n& b", "it does not parse as bash"),
    ("echo $\\\n(rm)", "it does not parse as bash"),
    ('echo "$\\\n(rm)"', "a text in double quotes or a here-document may hold more than is seen"),
    ("a\\\n#b; rm x", "there is something between two words that is no plain space"),
    ("((rm); (x))", "it does not parse as bash"),
    ("$((rm); (x))", "it does not parse as bash"),
    ("! { a; }", "which program is started is known only when it runs"),
    ("a `b \\`c\\``", "backticks hold a backslash or other backticks"),
    ('"`b`"', "which program is started is known only when it runs"),
    ("echo \"${x:-'$(rm)'}\"", "quotes in a parameter expansion are not read"),
    ("echo ${x:-'$(rm)'}", "quotes in a parameter expansion are not read"),
    ("echo ${!x}", "this form of parameter expansion is not read"),
    ("echo ${x:=rm}", "this form of parameter expansion is not read"),
    ("echo ${x:y}", "this form of parameter expansion is not read"),
    ("[ a > b ]", "a test in single brackets holds a sign that means something else there"),
    ("[ a \\< b ]", "it does not parse as bash"),
    ("[[ 'x[$(rm)]' -eq 1 ]]", "a test compares numbers, or asks for a variable: values may be run"),
    ("[[ -v x ]]", "a test compares numbers, or asks for a variable: values may be run"),
    ("test -v 'x[$(rm)]'", "a builtin is given a subscript that it may run"),
    ("let 'x[$(rm)]'", "arithmetic is only read when it holds nothing but numbers"),
    ("read 'x[$(rm)]'", "a builtin is given a subscript that it may run"),
    ("printf -v 'x[$(rm)]' a", "a builtin is given a subscript that it may run"),
    ("declare 'x[$(rm)]=1'", "a builtin is given a subscript that it may run"),
    ("x[$(rm)]=1", "a subscript is only read when it is a number"),
    ("a=([$(rm)]=1)", "an array names its subscripts"),
    ("for ((i=0;i<3;i++)); do a; done", "postfix_expression is not known"),
    ("coproc X { y; }", "which program is started is known only when it runs"),
    ("time { ls; }", "which program is started is known only when it runs"),
    ("coproc { rm; }", "which program is started is known only when it runs"),
    ("{ a; }b; c", "it does not parse as bash"),
    ("function if { a; }", "the name of a function holds unusual characters"),
    ("~/x", "which program is started is known only when it runs"),
    ("./x*", "which program is started is known only when it runs"),
    ("{rm,x}", "it does not parse as bash"),
    ("{fd}>x ls", "it does not parse as bash"),
    ("ls {x}>f", "a redirection may set a variable"),
    ("exec 3<>f", "it does not parse as bash"),
    ("bash <(rm)", "whether a shell is given commands is known only when it runs"),
    ("bash -c $X", "whether a shell is given commands is known only when it runs"),
    ("bash -O extglob -c 'a'", "a shell is given an option that is not known"),
    ("bash --rcfile f -c 'a'", "a shell is given an option that is not known"),
    ("zsh -c 'a'", "commands for a shell whose language is not read"),
    ("sh -c '[[ a == rm ]]'", "a shell that may not be bash is given something that only bash reads so"),
    ("sh -c 'a &> b'", "a shell that may not be bash is given something that only bash reads so"),
    ("eval $X", "a text that is to be run as commands is known only when it runs"),
    ("trap $X EXIT", "a text that is to be run as commands is known only when it runs"),
    ("alias ls=rm", "alias changes how the text after it is read"),
    ("shopt -s extglob", "shopt changes how the text after it is read"),
    ("set -k", "set may change how the text after it is read"),
    ("sh -s <<E\n$X\nE\n", "what a shell reads from its input is known only when it runs"),
    ("sh <<< $X", "what a shell reads from its input is known only when it runs"),
    ("cat <<E\\\nF\nx\nEF\n", "it does not parse as bash"),
    ("cat <<E <<F\nE\nF\n", "it does not parse as bash"),
    ("cat <<E\nx", "it does not parse as bash"),
    ("cat <<E; rm\nx\nE\n", "it does not parse as bash"),
    ("a\x00b", "it holds a NUL character"),
    ("a\ud800", "it holds half a character (a lone surrogate)"),
    ("a\x0bb", "there is something between two words that is no plain space"),
    ("a \u2003b", "a word holds an unusual space or control character"),
    ("if", "it does not parse as bash"),
    ("a)", "it does not parse as bash"),
    ("a'", "it does not parse as bash"),
    ("(a", "it does not parse as bash"),
    ("$'r\\x6d'", "which program is started is known only when it runs"),
    ('$"rm"', "which program is started is known only when it runs"),
    ("!! x", "the name of a command holds unusual characters"),
    ("!x", "the name of a command holds unusual characters"),
    ("cat <<E\n\\$(rm) ok\nE\n", "it does not parse as bash"),
    ('"a b" c', "the name of a command holds unusual characters"),
    ("'' a", "the name of a command holds unusual characters"),
    ("[ a ] b", "it does not parse as bash"),
    ("\\\nls", "there is something between two words that is no plain space"),
    ("ls|\\\ncat", "there is something between two words that is no plain space"),
    ("echo <<E a\nE\n", "words follow a here-document on its line"),
    ("echo ${a[1]} ${a[b]} ", "this form of parameter expansion is not read"),
    ("echo ${x:-`b`}", "this form of word is not known"),
    ("f() { $1; }", "which program is started is known only when it runs"),
    ('"$@"', "which program is started is known only when it runs"),
    ("for a in '-v x[$(rm)]'; do [ $a ]; done", "a test asks for a variable, or may when it runs: its name may be run"),
    (
        "for a in '-v x[$(rm)]'; do test $a; done",
        "a test asks for a variable, or may when it runs: its name may be run",
    ),
    ("[ \"$a\" 'x[$(rm)]' ]", "it does not parse as bash"),
    ("test \"$a\" 'x'", "a test asks for a variable, or may when it runs: its name may be run"),
    ('[ "$@" ]', "a test asks for a variable, or may when it runs: its name may be run"),
    ("[ -n $x ]", "a test asks for a variable, or may when it runs: its name may be run"),
    ("[ '-v' x ]", "it does not parse as bash"),
    ('printf "$a" x', "a builtin is given the name of a variable that is known only when it runs"),
    ("mapfile -C rm -c 1 x", "a builtin is given a text that it may run"),
    ("compgen -W '$(rm)'", "a builtin is given a text that it may run"),
    ("declare -a 'x=($(rm))'", "an array is given a value that may be run"),
    ("declare -a x='($(rm))'", "an array is given a value that may be run"),
    ('export -a x="$a"', "an array is given a value that may be run"),
    ("x=(1); declare x=$a", "an array is given a value that may be run"),
    ("'declare' -a 'x=($(rm))'", "a builtin that declares variables is not written as one"),
    ("bash -o posix -c rm", "a shell is given an option that is not known"),
    ("echo $'a\\'; rm; #'", "this form of ansi_c_string is not known"),
    ("cat > f - <<E\nx\nE", "there is something between two words that is no plain space"),
    ("a | cat - <<E\nx\nE", "there is something between two words that is no plain space"),
    ("env sh bash -c rm", "which of two shells is given commands cannot be told"),
    ("[[ a || rm ]]", "a test in double brackets holds a sign that another shell takes for its own"),
    ("[[ a > f ]]", "a test in double brackets holds a sign that another shell takes for its own"),
    ("[[ a =~ b|rm ]]", "a test in double brackets holds a sign that another shell takes for its own"),
    ("a\r\nb\r\n", "there is something between two words that is no plain space"),
]
LONG = [
    pytest.param("ls " + "a" * 100_000, id="one word"),
    pytest.param("ls " + "a " * 50_000, id="many words"),
    pytest.param("cat > f <<'E'\n" + ("some words in a line " * 5 + "\n") * 1000 + "E", id="a here-document"),
    pytest.param("echo '" + "it is a text. " * 8000 + "'", id="a quoted text"),
]
DEEP = [
    pytest.param("(" * 3000 + "a" + ")" * 3000, id="subshells"),
    pytest.param("( " * 3000 + "a" + " )" * 3000, id="subshells apart"),
    pytest.param("a $(" * 3000 + "a" + ")" * 3000, id="substitutions"),
    pytest.param('a "$(' * 3000 + "a" + ')"' * 3000, id="substitutions in quotes"),
    pytest.param("{ " * 3000 + "a" + "; }" * 3000, id="groups"),
    pytest.param("if a; then " * 3000 + "a" + "; fi" * 3000, id="conditions"),
    pytest.param("a=( " * 20_000, id="arrays never closed"),
    pytest.param("a|" * 50_000, id="a pipeline never ended"),
    pytest.param(("a;" * 100 + ")") * 400, id="brackets never opened"),
    pytest.param("ls " + "a " * 70_000, id="more words than are read"),
    pytest.param("timeout 5 " + "sh " * 50_000 + "-c a", id="shells without end"),
    pytest.param("time " * 50_000, id="measured again and again"),
    pytest.param("a;" * 50_000, id="more commands than are read"),
]
STUBS = ("one", "two", "six")


@pytest.mark.parametrize(("text", "commands", "files"), CLEAR, ids=lambda value: ascii(value)[:50])
def test_what_is_clear_is_listed_exactly(text: str, commands: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Every command by itself, and every file that is opened."""
    assert parse(text) == CommandLine(commands, files)


@pytest.mark.parametrize(("text", "why"), UNCLEAR, ids=lambda value: ascii(value)[:50])
def test_what_is_not_certain_is_unclear(text: str, why: str) -> None:
    """Nothing is listed then, and the reason is one for a person."""
    assert parse(text) == CommandLine(unclear=why)


@pytest.mark.parametrize("text", LONG)
def test_a_hundred_kilobytes_are_read(text: str) -> None:
    """Nothing of it is cut off."""
    assert parse(text).unclear is None
    assert parse(text + "\nlast one").commands[-1] == "last one"


@pytest.mark.parametrize("text", DEEP)
def test_what_is_too_deep_or_too_much_to_parse_is_unclear(text: str) -> None:
    """Nothing recurses, and nothing is parsed that would take minutes or all memory."""
    assert parse(text).unclear is not None


def test_a_text_over_the_limit_is_unclear() -> None:
    """It is not even parsed."""
    assert parse("a" * 262_145).unclear == "it is longer than 262144 bytes"


@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode(errors="surrogateescape"))))
@settings(max_examples=300)
def test_no_text_raises(text: str) -> None:
    """Lone surrogates and control characters among them; what is unclear lists nothing."""
    found = parse(text)
    assert found.unclear is None or (found.commands, found.files) == ((), ())


def test_characters_that_are_not_ascii_never_reach_the_scanner() -> None:
    """It reads past its tables on them and ends the whole process, though not each time."""
    for number in range(0x80, 0x110000, 257):
        if not 0xD800 <= number < 0xE000:
            parse(f"{{{chr(number)}{{ ${chr(number)} [{chr(number)}] {chr(number)}=1")
    assert parse("echo 'é' \U0001f600 > ü").files == ("ü",)


words = st.sampled_from(["a", "'b c'", '"d"', "$x", '"$x y"', "\\;", "*", "{a,b}", "-n", "k=v", "a#b", "$'q'", "é"])
files = st.sampled_from(["f", "'g h'", '"i"'])
targets = files.flatmap(lambda file: st.sampled_from([f"> {file}", f">>{file}", f"2>{file}", f"&>{file}", "2>&1"]))
names = st.sampled_from([*STUBS, "'one'", '"two"', "si\\x", "X=1 one", "X= Y='a b' two"])
simple = st.builds(
    lambda name, args, end: " ".join([name, *args, *end]),
    names,
    st.lists(words, max_size=2),
    st.lists(targets, max_size=1),
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = [
        "( {} )", "{{ {}\n}}", "! {}", "one $({})", 'two "a $({})"', "one `{}`", "six <({})", "A=$({}) two", "B=$({})",
        "for i in 1 2; do {}\ndone", "if {}\nthen one\nfi", "if two; then {}\nfi", "until {}\ndo one; break; done",
        "case a in (a) {}\n;; esac", "case a in b) one;; *) {}\nesac", "f() {{ {}\n}}; f", "function g {{ {}\n}}; g",
        "[[ -n $({}) ]]", "[[ a == a && -z '' ]] && {}", "time {}", "coproc {}", "{} &", "echo ${{n:-$({})}}",
        "cat <<E\n$({})\nE\n", "two <<'E'\n{}\nE\n", "one <<<\"$({})\"", "/bin/bash <<'E'\n{}\nE\n", "{} # six\n",
        "[ a = a ] && {}", "X=1 two <(one) > >({})", "echo $((1+$({})))", "a[$({})]=1", "six \\\n {}", "{}\\\n",
        "one <<-E\n\t$({})\n\tE\n", "echo \"${{n:-'$({})'}}\"", "eval '{}'", "/bin/bash -c '{}'", "trap '{}' EXIT",
    ]  # fmt: skip
    two = [
        "{}\n{}",
        "{}; {}",
        "{} && {}",
        "{} || {}",
        "{} | {}",
        "{} |& {}",
        "{} & {}",
        "{}&&\n{}",
        "{};{}",
        "{}|\\\n{}",
    ]
    return st.one_of(
        st.builds(str.format, st.sampled_from(one), inner),
        st.builds(str.format, st.sampled_from(two), inner, inner),
    )


lines = st.recursive(simple, _compound, max_leaves=6)
SOUP = (
    *STUBS,
    *[
        ";",
        "&",
        "|",
        "(",
        ")",
        "{",
        "}",
        "<",
        ">",
        "!",
        "$",
        "`",
        "'",
        '"',
        "\\",
        "#",
        "=",
        "[",
        "]",
        "\n",
        "a",
        "1",
        "E",
    ],
    " ",
    " ",
    "&&",
    "$(",
    "<(",
    "<<E",
    "\\\n",
)
soup = st.lists(st.sampled_from(SOUP), min_size=2, max_size=14).map("".join)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that only say their names."""
    bash = shutil.which("bash")
    if bash is None:
        if os.environ.get("CI"):
            pytest.fail("CI is set, but the command bash is not installed")
        pytest.skip("the command bash is not installed")
    folder = tmp_path_factory.mktemp("stubs")
    for name in STUBS:
        (folder / name).write_text(f'#!{bash}\necho {name} >&"$STARTED"\n')
        (folder / name).chmod(0o755)
    return folder


def _started(text: str, stubs: Path, folder: Path) -> set[str]:
    """Return the stubs that bash starts; those in the background are waited for, since they hold the pipe."""
    reading, writing = os.pipe()
    environment = {"PATH": str(stubs), "STARTED": str(writing)}
    command = [str(shutil.which("bash")), "--norc", "--noprofile", "-c", text]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with os.fdopen(reading) as log:
        try:
            subprocess.run(command, cwd=folder, env=environment, pass_fds=[writing], timeout=20, check=False, **streams)  # type: ignore[call-overload]
        finally:
            os.close(writing)
        return set(log.read().split())


def _is_listed(name: str, found: CommandLine) -> bool:
    """Tell whether a program is the command word of one of the commands."""
    return any(
        re.match(rf"(?:\w+=(?:'[^']*'|\$\(.*\)|\S)*\s+)*{name}(?:\s|$)", command, re.DOTALL)
        for command in found.commands
    )


@given(text=st.one_of(lines, soup))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_whatever_bash_starts_was_listed_or_the_text_is_unclear(
    text: str, stubs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Real bash, in an empty folder, where it can start nothing but the stubs."""
    found = parse(text)
    if found.unclear is None:
        started = _started(text, stubs, tmp_path_factory.mktemp("empty"))
        assert [name for name in started if not _is_listed(name, found)] == []


def test_the_stubs_are_seen_when_bash_starts_them(stubs: Path, tmp_path: Path) -> None:
    """Otherwise the test above would hold for any parser."""
    assert _started("one & (two | cat); X=1 six > f", stubs, tmp_path) == set(STUBS)
