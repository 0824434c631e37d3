"""The first connect: it succeeds, or it says in one line why not, in time."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import nkeys  # type: ignore[import-untyped]
import pytest
from structlog.testing import capture_logs

from hookbus_broker.connection import connect
from hookbus_broker.faults import reason, unavailable
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable, ConfigError
from peers import FakeServer
from support import NatsServer, until

SECRET = "s3cret"


async def failure(settings: BusSettings) -> str:
    """Return what a connect that fails says; it is one line, holds no password and leaves no task."""
    with capture_logs() as logs, pytest.raises((BusUnavailable, ConfigError)) as caught:
        async with asyncio.timeout(5):
            await connect(settings, name="test")
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message + repr(logs) + repr(caught.value.__cause__)
    return message


async def test_a_dead_server_is_said_to_be_dead(own_server: NatsServer) -> None:
    """At once, not after the timeout."""
    own_server.kill()
    said = await failure(BusSettings(url=f"nats://u:{SECRET}@127.0.0.1:{own_server.port}", connect_timeout=60))
    assert said == (
        f"bus 127.0.0.1:{own_server.port} is not available: nothing listens there; start nats-server or check bus.url"
    )
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_wrong_password_is_said_to_be_refused() -> None:
    """At once; the password is not said."""
    with NatsServer("authorization { user: u, password: right }\n", user=f"u:{SECRET}") as server:
        said = await failure(BusSettings(url=server.url, connect_timeout=60))
    assert said.startswith(f"bus 127.0.0.1:{server.port} is not available: the server refused the credentials")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_password_may_hold_any_character() -> None:
    """As long as the URL escapes it."""
    with NatsServer('authorization { user: "u@x", password: "p:/@%é" }\n', user="u%40x:p%3A%2F%40%25%C3%A9") as server:
        async with await connect(BusSettings(url=server.url), name="test") as connection:
            assert connection.is_connected


async def test_a_user_without_password_is_a_token() -> None:
    """As NATS reads URLs."""
    with NatsServer('authorization { token: "t0ken" }\n', user="t0ken") as server:
        async with await connect(BusSettings(url=server.url), name="test") as connection:
            assert connection.is_connected


async def test_an_unknown_host_is_said_to_be_unknown() -> None:
    """The reserved name resolves nowhere."""
    said = await failure(BusSettings(url=f"nats://u:{SECRET}@no-such-host.invalid:4222", connect_timeout=4))
    assert said == "bus no-such-host.invalid:4222 is not available: unknown host; check bus.url"


SILENT = [
    pytest.param({"greeting": b""}, "no answer in time", id="says nothing"),
    pytest.param({"first_answer": b""}, "no answer in time", id="does not answer the handshake"),
    pytest.param({"greeting": b"HTTP/1.1 400 Bad Request\r\n"}, "expecting INFO message", id="speaks HTTP"),
    pytest.param({"greeting": b"INFO {\r\n"}, "json parse error", id="greets with broken JSON"),
    pytest.param({"greeting": b"INFO " + b"x" * 200_000}, "", id="greets without end"),
    pytest.param({"first_answer": b"-ERR 'Maximum Connections Exceeded'\r\n"}, "Maximum Connections", id="is full"),
    pytest.param({"first_answer": b"\xff\r\n"}, "", id="answers nonsense"),
]


@pytest.mark.parametrize(("behaviour", "words"), SILENT)
async def test_a_server_that_does_not_play_along_is_given_up(behaviour: dict[str, bytes], words: str) -> None:
    """In time, whatever it does."""
    async with FakeServer(**behaviour) as server:
        said = await failure(BusSettings(url=server.url, connect_timeout=0.3))
        assert words in said
        assert f"bus 127.0.0.1:{server.port} is not available" in said


async def test_the_timeout_covers_all_servers_together(own_server: NatsServer) -> None:
    """A silent one does not use up the time of the one that answers."""
    async with FakeServer(greeting=b"") as silent:
        for urls in (f"{silent.url},{own_server.url}", f"{own_server.url},{silent.url}"):
            async with asyncio.timeout(2), await connect(BusSettings(url=urls, connect_timeout=1), name="test") as bus:
                assert bus.server == f"127.0.0.1:{own_server.port}"


async def test_without_a_url_there_is_nothing_to_connect_to() -> None:
    """The embedded server's URL is given by whoever started it."""
    assert "bus.url" in await failure(BusSettings())


async def test_the_url_given_wins(bus_url: str) -> None:
    """Over that of the settings."""
    async with await connect(BusSettings(url="nats://127.0.0.1:1"), name="test", url=bus_url) as connection:
        assert connection.server == bus_url.rpartition("@")[2]


async def test_no_echo_spares_a_connection_its_own_messages(bus_url: str) -> None:
    """And no responders says that nobody else listens."""
    async with await connect(BusSettings(url=bus_url), name="test", no_echo=True) as connection:
        await connection.subscribe_direct("a", print)
        with pytest.raises(nats.errors.NoRespondersError):
            await connection.request("a", b"", timeout=5)


async def test_a_cancelled_connect_leaves_nothing() -> None:
    """In the middle of the handshake."""
    async with FakeServer(first_answer=b"") as server:
        connecting = asyncio.create_task(connect(BusSettings(url=server.url), name="test"))
        async with asyncio.timeout(5):
            await until(lambda: b"PING\r\n" in server.lines)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
        assert server.connections == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Credentials in files.


def new_seed() -> tuple[bytes, str]:
    """Return the seed and the public key of a new user."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return bytes(seed), nkeys.from_seed(bytearray(seed)).public_key.decode()


async def test_an_nkey_seed_is_proof_of_identity_and_may_be_renewed(tmp_path: Path) -> None:
    """The file is read again for each link."""
    (old, old_key), (new, new_key) = new_seed(), new_seed()
    file = tmp_path / "seed"
    file.write_bytes(old + b"\n")
    config = "authorization {{ users = [ {{ nkey: {} }} ] }}\n"
    with NatsServer(config.format(old_key)) as server:
        settings = BusSettings(url=server.url, credentials=file, reconnect_wait=0.01, reconnect_wait_max=0.05)
        async with await connect(settings, name="test") as connection:
            server.reload(config.format(new_key))
            await connection.wait_disconnected()
            file.write_bytes(new)
            await connection.wait_connected()
            await connection.barrier()
        file.write_bytes(old)
        assert "the server refused the credentials" in await failure(settings)


@pytest.mark.parametrize("content", [b"", b"\xff", f"SU{SECRET}".encode(), b"-----BEGIN USER NKEY SEED-----"])
async def test_a_file_that_holds_no_seed_is_named(tmp_path: Path, bus_url: str, content: bytes) -> None:
    """Its contents are not."""
    file = tmp_path / "seed"
    file.write_bytes(content)
    assert await failure(BusSettings(url=bus_url, credentials=file)) == (
        f"bus.credentials: {file} does not hold an nkey seed"
    )


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: TLS is not tested")
    folder = tmp_path_factory.mktemp("tls")
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=test"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([openssl, *request.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def tls_server(certificate: Path) -> Iterator[NatsServer]:
    """A server that talks TLS only."""
    config = f'tls {{ cert_file: "{certificate}/cert.pem", key_file: "{certificate}/key.pem" }}\n'
    with NatsServer(config, user=f"u:{SECRET}") as server:
        yield server


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_tls_with_the_right_authority_works(
    tls_server: NatsServer, certificate: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when large messages fill the socket; it comes back after a restart, and asyncio has nothing to say."""
    url = tls_server.url.replace("nats", scheme)
    settings = BusSettings(url=url, tls_ca=certificate / "cert.pem", reconnect_wait=0.01, pending_bytes=200_000)
    async with await connect(settings, name="test") as connection:
        got: list[int] = []
        await connection.subscribe_direct("a", lambda msg: got.append(len(msg.data)))
        for _ in range(50):
            await connection.publish("a", bytes(100_000))
        await connection.barrier()
        assert got == [100_000] * 50
        tls_server.kill()
        await connection.wait_disconnected()
        tls_server.start()
        await connection.wait_connected()
        await connection.barrier()
    assert caplog.records == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_unknown_authority_is_refused(tls_server: NatsServer) -> None:
    """Its certificate is not among those that the system trusts."""
    said = await failure(BusSettings(url=tls_server.url.replace("nats", "tls")))
    assert "TLS failed" in said
    assert "bus.tls_ca" in said


async def test_a_server_without_tls_gets_no_credentials_over_a_tls_url() -> None:
    """Somebody in between could have taken the TLS away."""
    async with FakeServer() as server:
        said = await failure(BusSettings(url=server.url.replace("nats://", f"tls://u:{SECRET}@")))
        assert "offers no TLS" in said
        assert server.lines == []


async def test_a_file_without_certificates_is_named(tmp_path: Path, bus_url: str) -> None:
    """Not at the first handshake but before."""
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    assert await failure(BusSettings(url=bus_url, tls_ca=file)) == f"bus.tls_ca: {file} does not hold PEM certificates"


# The mapping.


ARGUMENTS: dict[str, tuple[object, ...]] = {
    "BadHeaderError": ("name",),
    "SlowConsumerError": ("subject", "reply", 1, None),
    "MsgAlreadyAckdError": (None,),
}
KINDS = [kind for kind in vars(nats.errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_of_nats_py_becomes_one_of_ours(kind: type[Exception]) -> None:
    """With a reason in one line."""
    error = kind(*ARGUMENTS.get(kind.__name__, ()))
    assert isinstance(unavailable(error, "host:1"), BusUnavailable)
    assert reason(error)
    assert "\n" not in reason(error)


REASONS = [
    pytest.param(ConnectionResetError(104, "Connection reset by peer"), "connection reset by peer", id="reset"),
    pytest.param(ConnectionResetError(), "ConnectionResetError", id="no words"),
    pytest.param(OSError("Multiple exceptions: [Errno 111] Connect call failed"), "nothing listens", id="two families"),
    pytest.param(TimeoutError(), "no answer in time", id="timeout"),
    pytest.param(ValueError("two\nlines"), "two lines", id="lines"),
]


@pytest.mark.parametrize(("error", "words"), REASONS)
def test_a_reason_is_one_line_without_numbers(error: Exception, words: str) -> None:
    """For people, in a log line."""
    assert reason(error).startswith(words)


def test_a_failed_verification_says_what_failed() -> None:
    """In OpenSSL's words, without its numbers."""
    error = ssl.SSLCertVerificationError(1, "[SSL] certificate verify failed")
    error.verify_message = "self-signed certificate"
    assert reason(error) == "TLS failed: self-signed certificate; check bus.tls_ca"
