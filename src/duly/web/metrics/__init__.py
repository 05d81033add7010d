"""`/metrics`: the numbers of all queues, topics, workers and schedules, for Prometheus.

What can be told is a table, METRICS. For each scrape the server is looked at once, and the rows of the table take
from that sight what they tell. Nothing is kept between scrapes.
"""

from duly.web.metrics.serving import route

__all__ = ["route"]
