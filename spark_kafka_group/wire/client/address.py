"""Addresses as texts show them, and as kafka.bootstrap.servers has them."""

from __future__ import annotations


def address(host: str, port: int) -> str:
    """``host:port``; an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
