"""Carries TCP from one address to another, as a tunnel or a reverse proxy does: tunnel.py ADDRESS PORT TO_ADDRESS TO_PORT."""

import asyncio
import sys


async def carry(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main(address, port, to_address, to_port):
    async def accept(reader, writer):
        far_reader, far_writer = await asyncio.open_connection(to_address, int(to_port))
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    server = await asyncio.start_server(accept, address, int(port))
    print("open", flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
