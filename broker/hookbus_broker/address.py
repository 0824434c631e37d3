"""Where to connect and as whom, taken from the URL: the rest of the connection never sees a password in a URL."""

import asyncio
import ssl
from typing import TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import ConfigError


class Options(TypedDict):
    """What nats-py is told."""

    servers: list[str]
    user: str | None
    password: str | None
    token: str | None
    tls: ssl.SSLContext | None


async def options(settings: BusSettings, url: str | None) -> Options:
    """Return the servers without credentials, the credentials, and the TLS context if one is asked for.

    Raises:
        ConfigError: there is no URL, or `bus.tls_ca` holds no certificate.
    """
    addresses = [urlsplit(one.strip()) for one in (url or settings.url or "").split(",")]
    if not all(address.hostname for address in addresses):
        raise ConfigError("bus.url: should name a server, such as nats://host:4222")
    user, password, token = _identity(next((one for one in addresses if one.username), addresses[0]))
    tls = settings.tls_ca is not None or any(address.scheme == "tls" for address in addresses)
    return Options(
        servers=[f"{address.scheme}://{address.netloc.rpartition('@')[2]}" for address in addresses],
        user=user,
        password=password,
        token=token,
        tls=await _tls_context(settings) if tls else None,
    )


def _identity(address: SplitResult) -> tuple[str | None, str | None, str | None]:
    """Return user, password and token; a user without a password is a token."""
    if not address.username:
        return None, None, None
    if address.password is None:
        return None, None, unquote(address.username)
    return unquote(address.username), unquote(address.password), None


async def _tls_context(settings: BusSettings) -> ssl.SSLContext:
    try:
        return await asyncio.to_thread(ssl.create_default_context, cafile=settings.tls_ca)
    except OSError:  # ssl.SSLError too
        raise ConfigError(f"bus.tls_ca: {settings.tls_ca} does not hold PEM certificates") from None
