"""The client's rules, pure: numbering of puts, cursors, the handshake, requests in flight."""
