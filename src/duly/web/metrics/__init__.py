"""`/metrics`: the numbers of all queues, topics, workers and schedules, for Prometheus.

What can be told is a table, METRICS. The server is looked at once, for all who ask at the same time or within a second,
and the rows of the table take from that scrape what they tell. Nothing is kept between looks.
"""

from duly.web.metrics.serving import route

__all__ = ["route"]
