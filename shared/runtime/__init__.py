"""Infrastructure of every process: settings, life cycle, periodic loops, health, logs, metrics and fault points.

Nothing here knows jobs or batches. Drivers may use fault points, metrics and logs; the rest is for services and
for the modules that compose them.
"""
