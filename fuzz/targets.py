"""What is fuzzed: functions of bytes that must return, whatever the bytes are.

Law: a target raises only when it found something. `run.py` drives them with atheris;
tests/fuzz replays the kept corpus through them without it.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from damage import Copied, Feed, Made, damage, make_log, make_outbox

from oncemq import config
from oncemq.client.state.outbox import Slot
from oncemq.client.state.unsent import Unsent
from oncemq.config import quantities
from oncemq.errors import ConfigError, Corrupt, StorageRefused
from oncemq.protocol.names import ClientId, Offset, TopicId
from oncemq.protocol.records import CursorMoved, Marked, Record
from oncemq.protocol.replies import REPLIES
from oncemq.protocol.requests import REQUESTS
from oncemq.storage.log.log import Log
from oncemq.storage.log.recovery import OpenedLog, open_log
from oncemq.storage.segments.framing import encode, first_frame_after, frame_key
from oncemq.storage.segments.segment import HEADER_BYTES, read_header
from oncemq.storage.segments.verify import verify
from oncemq.wire import batch, codec
from oncemq.zmtp import commands
from oncemq.zmtp.connection import Event, Opened, Phase, ZmtpConnection
from oncemq.zmtp.greeting import greeting
from oncemq.zmtp.limits import WireError, WireLimits
from oncemq.zmtp.messages import Frame
from oncemq.zmtp.messages import encode as encode_message


def codec_target(data: bytes) -> None:
    """Frames are a value or Malformed; a value says itself again."""
    feed = Feed(data)
    mode = feed.byte()
    codes = sorted(REQUESTS if mode & 1 else REPLIES)
    head = b""
    if mode & 2:  # a good head before the fields, or it takes long to get past it
        opcode = codes[feed.byte() % len(codes)]
        head = codec.MAGIC + bytes([codec.VERSION, opcode]) + feed.take(8).ljust(8, b"\0")
    bodies = [feed.take(feed.byte()) for _ in range(feed.byte() % 4)]
    frames = [head + feed.rest(), *bodies] if mode & 4 or head else bodies
    try:
        if mode & 1:
            token, request, body = codec.decode_request(frames)
            again = codec.encode_request(token, request, body)
            repeated = codec.encode_request(*codec.decode_request(again))
        else:
            token, reply, found = codec.decode_reply(frames)
            again = codec.encode_reply(token, reply, found)
            repeated = codec.encode_reply(*codec.decode_reply(again))
    except codec.Malformed as fault:
        answer = codec.encode_reply(fault.token, fault.refusal)
        codec.decode_reply(answer)
        return
    assert repeated == again  # of bytes: not every value equals itself


def batch_target(data: bytes) -> None:
    """What `fault` lets pass can be cut anywhere and taken apart; the rest is told why."""
    feed = Feed(data)
    mode, columns, count = feed.byte(), feed.byte() % 5, feed.number(2)
    start, stop, limit = feed.number(2), feed.number(2), feed.number(2)
    if mode & 1:  # a good batch, of which a few bytes are changed
        count = 1 + count % 8
        items = [
            batch.Item(feed.short(), feed.short() if columns & 1 else None, _headers(feed, columns))
            for _ in range(count)
        ]
        columns, body = batch.encode(items)
        assert batch.decode(body, count, columns) == items
        body = damage(feed, body, feed.byte() % 3)
    else:
        body = feed.rest()
    why = batch.fault(body, count, columns, message_bytes_max=limit)
    if why is not None:
        assert why
        return
    payloads = batch.payloads_of(body, count, columns)
    assert len(payloads) == count
    assert len(body) <= limit or max(map(len, payloads)) <= limit
    start, stop = sorted((start % count, 1 + stop % count))
    if start == stop:
        return
    part = batch.cut(body, count, columns, start=start, stop=stop)
    assert batch.fault(part, stop - start, columns, message_bytes_max=limit) is None
    assert batch.payloads_of(part, stop - start, columns) == payloads[start:stop]
    end = batch.fit(body, count, columns, start=start, stop=stop, bytes_max=limit)
    assert start <= end <= stop
    joined_columns, joined = batch.join([(body, count, columns), (part, stop - start, columns)])
    total = count + stop - start
    assert batch.payloads_of(joined, total, joined_columns) == payloads + payloads[start:stop]
    whole = batch.decode(body, count, columns)
    assert batch.decode(part, stop - start, columns) == whole[start:stop]
    assert batch.decode(joined, total, joined_columns) == whole + whole[start:stop]


def _headers(feed: "Feed", columns: int) -> batch.Headers | None:
    return {feed.short().hex(): feed.short().hex()} if columns & 2 else None


def recovery_target(data: bytes) -> None:
    """A damaged log is refused with a typed error, or opens with nothing in it but what was put."""
    feed = Feed(data)
    kind = feed.byte() % 3
    made = _log(kind)
    disk = made.copy()
    for _ in range(1 + feed.byte() % 4):
        disk.damage(feed)
    try:
        opened = _open(disk)
    except StorageRefused:
        return
    try:
        _check(opened, made)
        serial = opened.log.append(Marked())
        _commit(opened.log)
    finally:
        opened.log.close()
    try:
        again = _open(disk)  # what was mended stays so
    except Corrupt:
        assert kind  # but a segment that checkpoints cover is not read through at each opening
        return
    assert again.log.last_serial == serial
    _replayed(again)
    again.log.close()


@cache
def _log(kind: int) -> Made:
    return make_log(kind)


def _open(disk: Copied) -> OpenedLog:
    return open_log(disk, "/data", Made.OPTIONS, random_bytes=lambda size: b"\7" * size)


def _replayed(opened: OpenedLog) -> list[tuple[int, Record]]:
    """What state is rebuilt from; refused with a typed error where a record cannot be read."""
    try:
        return list(opened.replay)
    except StorageRefused:
        return []


def _commit(log: Log) -> None:
    group = log.take_group()
    assert group is not None
    log.write(group)
    log.finished(group)


def _check(opened: OpenedLog, made: Made) -> None:
    replayed = _replayed(opened)
    for (serial, record), (before, _) in zip(replayed[1:], replayed, strict=False):
        assert serial == before + 1, f"{record} after {before}"
    for serial, record in replayed:
        assert made.records.get(serial) == record, f"phantom {serial}: {record}"
    assert opened.log.last_serial <= max(made.records)
    assert not opened.states or opened.states in made.checkpoints
    for topic_id in made.payloads:
        _read(opened.log, topic_id, made)


def _read(log: Log, topic_id: int, made: Made) -> None:
    """Every message there is equals the one that was put, or is called corrupt."""
    offset = 0
    try:
        while (place := log.find(TopicId(topic_id), offset)) is not None:
            stored = log.read(place, verify=True)
            record = stored.record
            found = batch.payloads_of(stored.body, record.count, record.columns)
            first, offset = record.first_offset, record.first_offset + record.count
            assert found == made.payloads[topic_id][first:offset], f"changed {topic_id}@{first}"
    except Corrupt:
        return


def frames_target(data: bytes) -> None:
    """Frames of this very log in any order, with junk between: only a whole chain is believed."""
    feed = Feed(data)
    made = _log(0)
    disk = made.copy()
    path = next(path for path in disk.files if path.endswith(".log"))
    identity = _identity(disk, path)
    key = frame_key(identity)
    content = disk.files[path]
    del content[HEADER_BYTES:]
    serial, previous, expected = 0, key, [(0, 0)]
    for _ in range(feed.byte() % 8):
        act = feed.byte()
        if act & 1:
            content += feed.short()
        serial += (1, 1, 1, 0, 2)[(act >> 1) % 5]
        cursor = CursorMoved(TopicId(feed.byte()), ClientId(feed.short().hex()), Offset(act))
        before = previous if act & 16 else feed.number(4)
        chain, head = encode(
            cursor, key=key, serial=serial, previous=before, durable=feed.byte() % 9
        )
        content += head
        expected.append((serial, chain))
        previous = chain
    content += bytes(feed.byte()) + feed.rest()
    file = disk.open(path)
    header = read_header(file)
    assert header is not None
    found = verify(file, header, key)
    assert (found.last_serial, found.chain) in [*expected, (0, header.chain)]
    assert found.end <= len(content)
    frame = first_frame_after(file, HEADER_BYTES, len(content), key, serial_min=0)
    assert frame is None or (frame.serial, frame.chain) in expected
    try:
        opened = _open(disk)
    except StorageRefused:
        return
    assert opened.log.last_serial == found.last_serial
    assert len(_replayed(opened)) == found.last_serial
    opened.log.close()


def _identity(disk: Copied, path: str) -> bytes:
    header = read_header(disk.open(path))
    assert header is not None
    return header.identity


def outbox_target(data: bytes) -> None:
    """A damaged outbox is refused with a typed error, or holds nothing but what was put there."""
    feed = Feed(data)
    disk, puts = _outbox()
    disk = disk.again()
    for _ in range(1 + feed.byte() % 3):
        disk.damage(feed)
    try:
        slot = Slot(disk, "/outbox", lambda size: b"\7" * size)
    except StorageRefused:
        return
    assert all(put in puts for put in slot.pending)
    slot.close()


@cache
def _outbox() -> tuple[Copied, list[Unsent]]:
    return make_outbox()


def settings_target(data: bytes) -> None:
    """A setting's text is a value or a ConfigError; a size or duration reads back the same."""
    feed = Feed(data)
    names = sorted(config.SETTINGS)
    name = names[feed.byte() % len(names)]
    text = feed.rest().decode("utf-8", "replace")
    for parse, form in (
        (quantities.parse_duration, quantities.format_duration),
        (quantities.parse_size, quantities.format_size),
    ):
        try:
            quantity = parse(text)
        except ConfigError:
            continue
        assert quantity >= 0
        assert parse(form(quantity)) == quantity
    with suppress(ConfigError):
        config.load({name: text}, environ={"HOME": "/home/ada"})
    with tempfile.NamedTemporaryFile(suffix=".toml", dir=_scratch()) as file:
        file.write(data[1:])
        file.flush()
        with suppress(ConfigError):
            config.load(file=file.name, environ={"HOME": "/home/ada"})


@cache
def _scratch() -> str:
    return "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()


_SOCKETS = ((b"ROUTER", b"DEALER"), (b"DEALER", b"ROUTER"), (b"XPUB", b"SUB"), (b"SUB", b"XPUB"))
_LIMITS = WireLimits(
    frame_bytes_max=200_000,
    message_bytes_max=300_000,
    message_frames_max=6,
    handshake_bytes_max=300,
    command_bytes_max=280,
)


def zmtp_target(data: bytes) -> None:
    """Any bytes of a peer are events or one refusal, the same wherever they are cut."""
    feed = Feed(data)
    mode, cuts = feed.byte(), [feed.byte() for _ in range(4)]
    ours, theirs = _SOCKETS[mode & 3]
    said = _handshake(theirs) if mode & 4 else b""
    while mode & 8 and feed.byte() & 3:
        said += _part(feed)
    said += feed.rest()
    at, pieces = 0, list[bytes]()
    for size in cuts:
        pieces.append(said[at : at + size])
        at += size
    whole, cut = _hear(ours, [said]), _hear(ours, [*pieces, said[at:]])
    assert whole == cut, f"{whole} is not {cut}"


def _handshake(socket_type: bytes) -> bytes:
    said = commands.properties({b"Socket-Type": socket_type})
    return greeting(b"NULL", as_server=False) + commands.command(commands.READY, said)


def _part(feed: Feed) -> bytes:
    """Something that a peer may well say; its size may be a lie."""
    kind = feed.byte()
    body = feed.short() * (1 + kind // 8)
    match kind % 4:
        case 0:
            return b"".join(bytes(each) for each in encode_message([body, feed.short()]))
        case 1:
            return commands.command((b"PING", b"SUBSCRIBE", b"CANCEL", b"ERROR")[kind >> 6], body)
        case 2:
            return bytes((2 | kind >> 7,)) + feed.number(3).to_bytes(8, "big") + body
        case _:
            return bytes((kind >> 7, feed.byte())) + body * 16


def _hear(socket_type: bytes, pieces: list[bytes]) -> tuple[list[Event], str, bytes]:
    """What an end makes of them: its events, why it ended, and what it answered."""
    connection = ZmtpConnection(socket_type, _LIMITS)
    events, came, why = list[Event](), 0, ""
    try:
        for piece in pieces:
            came += len(piece)
            while piece:
                piece = _receive(connection, piece)
                while (event := connection.next_event()) is not None:
                    events.append(_checked(event))
                assert connection.held_bytes <= 2 * came + 70_000
    except WireError as fault:
        why = str(fault)
    assert why.isprintable()
    if why:
        assert connection.phase is Phase.ENDED
        assert connection.held_bytes == 0
    return events, why, b"".join(connection.take_output())


def _receive(connection: ZmtpConnection, piece: bytes) -> bytes:
    """What is left of the piece."""
    view = connection.landing()
    if view is None:
        connection.receive(piece)
        return b""
    count = min(len(view), len(piece))
    view[:count] = piece[:count]
    view.release()
    connection.landed(count)
    return piece[count:]


def _checked(event: Event) -> Event:
    if not isinstance(event, list):
        assert not isinstance(event, Opened) or len(event.peer.identity) <= 255
        return event
    frames = [bytes(frame) for frame in event]
    assert len(frames) <= _LIMITS.message_frames_max
    assert sum(map(len, frames)) <= _LIMITS.message_bytes_max + 255 * len(frames)
    again = b"".join(bytes(each) for each in encode_message(frames))
    echo = ZmtpConnection(b"DEALER", _LIMITS)
    echo.receive(_handshake(b"ROUTER") + again)
    assert isinstance(echo.next_event(), Opened)
    heard = echo.next_event()
    assert isinstance(heard, list)
    assert [bytes(frame) for frame in heard] == frames
    return list[Frame](frames)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "batch": batch_target,
    "codec": codec_target,
    "frames": frames_target,
    "outbox": outbox_target,
    "recovery": recovery_target,
    "settings": settings_target,
    "zmtp": zmtp_target,
}
