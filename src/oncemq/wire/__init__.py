"""Bytes on the network, pure: frames, codec, and the batch that is the same bytes everywhere."""
