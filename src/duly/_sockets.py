"""Sockets for both wires: keep-alive, TLS, and the reasons of failed connections in plain words."""

import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from duly.errors import UsageError

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence before the first probe, seconds between probes, and probes until the connection is dead."""

_CERT_REQS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_UNSUPPORTED: Final = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled", "ssl_ocsp_context", "ssl_ocsp_expected_cert")


def prepare(connection: socket.socket) -> None:
    """Send small commands at once, and detect a peer that has vanished without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all three
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS settings of the options. Files are read for each connection, since certificates are renewed."""
    if refused := next((name for name in _UNSUPPORTED if options.get(name)), None):
        raise UsageError(f"{refused} is not supported: Duly does not check OCSP responses")
    context = ssl.create_default_context()
    reqs = options.get("ssl_cert_reqs", "required")
    mode = _CERT_REQS[reqs] if isinstance(reqs, str) else reqs
    context.check_hostname = bool(options.get("ssl_check_hostname", True)) and mode != ssl.CERT_NONE
    context.verify_mode = mode
    _load_files(context, options)
    if (version := options.get("ssl_min_version")) is not None:
        context.minimum_version = version
    if ciphers := options.get("ssl_ciphers"):
        context.set_ciphers(ciphers)
    for flag in options.get("ssl_include_verify_flags") or ():
        context.verify_flags |= flag
    for flag in options.get("ssl_exclude_verify_flags") or ():
        context.verify_flags &= ~flag
    return context


def _load_files(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    """Load the files of the options. An error of OpenSSL does not name its file."""
    certificate = options.get("ssl_certfile")
    authorities = {name: options.get(f"ssl_{old}") for name, old in _AUTHORITIES.items()}
    try:
        if certificate:
            context.load_cert_chain(certificate, options.get("ssl_keyfile"), options.get("ssl_password"))
    except OSError as error:
        raise ConnectionError(f"ssl_certfile {certificate} cannot be loaded: {_reason(error)}") from error
    try:
        if any(authorities.values()):
            context.load_verify_locations(**authorities)
    except OSError as error:
        given = [f"ssl_{_AUTHORITIES[name]}" for name, value in authorities.items() if value]
        where = authorities["cafile"] or authorities["capath"] or "text"
        raise ConnectionError(f"{', '.join(given)} {where} cannot be loaded: {_reason(error)}") from error


_AUTHORITIES: Final = {"cafile": "ca_certs", "capath": "ca_path", "cadata": "ca_data"}


def unreachable(place: str, errors: Sequence[Exception]) -> OSError:
    """Return the error of a server that none of its addresses reached."""
    reasons = dict.fromkeys(map(_reason, errors))
    kind = TimeoutError if all(isinstance(error, TimeoutError) for error in errors) else ConnectionError
    return kind(f"cannot connect to {place}: {'; '.join(reasons)}")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError | socket.gaierror):
        return str(error.strerror or error)
    if isinstance(error, TimeoutError):
        return "timed out"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else str(error) or type(error).__name__
