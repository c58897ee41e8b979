"""The app: `once run shop.worker:app`."""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import oncemq
from oncemq import App
from shop import database, handlers
from shop.mail import Mail

SERVER = os.environ.get("ONCEMQ_SERVER", "tcp://127.0.0.1:5556")
DATABASE = Path(os.environ.get("SHOP_DATABASE", "shop.db"))


def make_app(server: str = SERVER, path: Path = DATABASE) -> App:
    """The shop on a server and a database; tests make it with theirs."""
    app = App(server, id="shop")
    connect = partial(database.connect, path)
    mail = Mail(path)
    running = ExitStack()

    app.handler("orders", into=connect, give_up_on=handlers.NotSold)(handlers.take)

    @app.handler("bills")
    def send_bill(bill: handlers.Bill, message: oncemq.Message) -> None:
        handlers.send_bill(bill, message, mail)

    @app.on_startup
    def begin() -> None:
        database.create(path)
        # The app's server is the one it was told to run on: `once run --server`, or a test's.
        running.enter_context(oncemq.Relay(connect, server=app.server))

    @app.on_shutdown
    def end() -> None:
        running.close()

    return app


app = make_app()
