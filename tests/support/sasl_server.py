"""The other end of a login by PLAIN: a listener of a broker that answers logins and Metadata, nothing else."""

from __future__ import annotations

import asyncio

from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from kafkalite.security.sasl.client_exchange import login_of

METADATA_VERSION = 9
LOGIN = login_of("PLAIN", {"username": "broker", "password": "secret"})


class SaslServer:
    """Lets everybody in, or refuses with `error`; `asked` are the API keys that came, in order."""

    def __init__(self, lifetime_ms: int = 0, error: str = "") -> None:
        self.lifetime_ms, self.error = lifetime_ms, error
        self.asked: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
            header = decode_request_header(frame)[0]
            self.asked.append(header.api_key)
            if header.api_key == 17:
                parts = response_frame(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, header.correlation_id)
            elif header.api_key == 36:
                said = SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
                if self.error:
                    said = SaslAuthenticateResponse(error_code=58, error_message=self.error)
                parts = response_frame(said, 1, header.correlation_id)
            else:
                parts = response_frame(MetadataResponse(cluster_id="c"), METADATA_VERSION, header.correlation_id)
            writer.write(b"".join(bytes(part) for part in parts if not hasattr(part, "file")))
