"""Taking apart what the server writes: as nats-py's own parser does, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from hookbus_broker.parsing import MessageParser

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
LINES = (
    b"MSG a.b 1 5\r\nhello\r\n",
    b"MSG a.b 12 reply.to 0\r\n\r\n",
    b"MSG a 1 19\r\nMSG x 1 4\r\nPING\r\n\r\n\r\n",
    b"HMSG a 2 %d %d\r\n%shello\r\n" % (len(HEADERS), len(HEADERS) + 5, HEADERS),
    b"HMSG a 2 reply.to %d %d\r\n%s\r\n" % (len(HEADERS), len(HEADERS), HEADERS),
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'Stale Connection'\r\n",
    b'INFO {"a": 1}\r\n',
)


class Client:
    """Notes what a parser hands on."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.seen.append((sid, bytes(subject), bytes(reply), data, headers or b""))

    async def _process_ping(self) -> None:
        self.seen.append("ping")

    async def _process_pong(self) -> None:
        self.seen.append("pong")

    async def _process_err(self, error: str) -> None:
        self.seen.append(error)

    async def _process_info(self, info: object) -> None:
        self.seen.append(info)


async def seen(parser: type[Parser], pieces: list[bytes]) -> list[object]:
    """Return what is handed on of these pieces."""
    client = Client()
    parsing = parser(client)
    for piece in pieces:
        await parsing.parse(piece)
    return client.seen


@given(st.lists(st.sampled_from(LINES), max_size=12), st.lists(st.integers(1, 40), min_size=1, max_size=60))
async def test_all_is_handed_on_as_by_the_parser_of_nats_py(lines: list[bytes], sizes: list[int]) -> None:
    """Cut anywhere: in a line, in headers, between carriage return and line feed."""
    rest, pieces = b"".join(lines), []
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    expected = await seen(Parser, [b"".join(lines)])
    assert len(expected) == len([line for line in lines if line != b"+OK\r\n"])
    assert await seen(MessageParser, [*pieces, rest]) == expected


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"MSG a 1\r\n", id="too few words"),
        pytest.param(b"MSG a 1 b c 5\r\n", id="too many words"),
        pytest.param(b"MSG a one 5\r\n", id="subscription that is no number"),
        pytest.param(b"MSG a 1 -5\r\n", id="negative size"),
        pytest.param(b"HMSG a 1 9 5\r\n", id="headers larger than all"),
        pytest.param(b"HMSG a 1 5\r\n", id="no size of headers"),
        pytest.param(b"NO SUCH VERB\r\n", id="no such verb"),
    ],
)
async def test_a_line_that_cannot_be_read_is_an_error(line: bytes) -> None:
    """What is behind it could be anything."""
    with pytest.raises(ProtocolError):
        await seen(MessageParser, [line])


async def test_a_subject_with_an_odd_character_harms_nobody() -> None:
    """Of white space the server keeps only spaces, tabs and line ends out of subjects."""
    assert await seen(MessageParser, [b"MSG a\x0bb 1 2\r\nhi\r\n"]) == [(1, b"a\x0bb", b"", b"hi", b"")]
