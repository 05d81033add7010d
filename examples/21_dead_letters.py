"""A parcel service that was down, and unreadable addresses: inspect dead letters, fix bodies, redrive them."""

import os

import duly

is_service_up = False


def ship(parcel: dict[str, str]) -> None:
    if not is_service_up:
        raise TimeoutError("the parcel service does not answer")
    if not parcel["zip"].isdigit():
        raise ValueError(f"{parcel['zip']!r} is not a zip code")


def work_off(parcels: duly.Queue) -> None:
    while batch := parcels.receive(wait=0.2):
        for d in batch:
            try:
                with d:
                    ship(d.body)
            except (TimeoutError, ValueError) as error:
                print(f"  {d.body['to']}: {error}")


def with_digits(letter: duly.Message) -> dict[str, str]:
    """Fix a typing error: the letter O for the digit 0."""
    return {**letter.body, "zip": letter.body["zip"].replace("O", "0")}


with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    parcels = app.queue("example-parcels", retry=duly.Retry(attempts=1))
    by_hand = app.queue("example-parcels-by-hand")
    for to, code in (("Ann", "10115"), ("Bob", "1O117"), ("Eve", "??")):
        parcels.send({"to": to, "zip": code}, headers={"country": "DE"})
    work_off(parcels)

    # The service is up again. First a dry run, then the redrive, at most 100 per second.
    is_service_up = True
    away = duly.Where(error="TimeoutError*", headers={"country": "DE"})
    print("would be redriven:", parcels.redrive(where=away, dry_run=True))
    print("redriven:", parcels.redrive(where=away, rate="100/s"))
    work_off(parcels)

    # Two are dead for another reason. One can be fixed, the other needs a person.
    unreadable = duly.Where(error="zip code")
    print("unreadable:", [letter.body for letter in parcels.find_dead(unreadable)])
    parcels.redrive(where=lambda letter: "O" in letter.body["zip"], edit=with_digits)
    work_off(parcels)
    print("moved:", parcels.redrive(where=unreadable, to=by_hand))

    letter = by_hand.list("ready")[0]
    print("for people:", letter.body, [event.what for event in letter.timeline])
    print("shipped", parcels.stats().acked, "dead", parcels.stats().dead, "audit passed:", bool(parcels.audit()))
    parcels.delete()
    by_hand.delete()
