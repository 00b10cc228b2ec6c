"""The IO shell: sockets in front, sockets behind, and in between the guard's commands, performed. The only asyncio on
the request path."""
