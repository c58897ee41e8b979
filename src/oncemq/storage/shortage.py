"""What the system says when something is used up, and nothing is broken.

Law: these are refusals. Whoever gets one has written nothing, and may try again later.
"""

import errno

# EFBIG: a file may not grow further (`ulimit -f`, or a limit of the file system); others may.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
