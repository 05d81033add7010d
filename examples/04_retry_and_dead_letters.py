"""A bank that does not answer: retries by policy, then a dead letter, then another try when the bank is back."""

import os

import duly

is_bank_up = False


def pay(order: int) -> None:
    if not is_bank_up:
        raise ConnectionError(f"the bank does not answer for order {order}")


def work_off(payments: duly.Queue) -> None:
    while batch := payments.receive(wait=0.5):
        for d in batch:
            try:
                with d:
                    pay(d.body["order"])
            except ConnectionError as error:  # the message is back in the queue, or dead
                print(f"  attempt {d.attempt}: {error}")


with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    payments = app.queue("example-payments", retry=duly.Retry(attempts=3, first=0.05, factor=2))
    payments.send({"order": 1})
    payments.send({"order": 2}, retry=duly.Retry(attempts=1))  # this one is tried once
    work_off(payments)

    for letter in payments.list("dead"):
        print("dead:", letter.body, "-", letter.reason, "-", letter.errors[-1].error)

    is_bank_up = True
    print("redriven", payments.redrive())
    work_off(payments)
    print("acked", payments.stats().acked, "dead", payments.stats().dead)
    payments.delete()
