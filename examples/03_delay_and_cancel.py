"""Close an order that is not paid in time; a payment cancels the closing. Seconds here stand for minutes."""

import os
import time

import duly

with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    closing = app.queue("example-closing")
    closings = {order: closing.send({"close": order}, delay=0.3) for order in ("A", "B", "C")}

    # B is paid. True: this call ended the message. No consumer has it, and none will get it.
    print("B is paid, closing cancelled:", closing.cancel(closings["B"]))
    # C gets more time.
    print("C gets more time:", closing.reschedule(closings["C"], delay=0.6))

    began = time.monotonic()
    while batch := closing.receive(wait=0.8):
        for d in batch:
            with d:
                print(f"closing {d.body['close']} after {time.monotonic() - began:.1f} s")

    print("cancelled", closing.stats().cancelled, "acked", closing.stats().acked)
    closing.delete()
