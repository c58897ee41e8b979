"""Work on connections that block; generated from `databases.aio`."""
