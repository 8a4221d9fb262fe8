"""What programs are tested with, in one process without servers; public as `tailrace.testing`.

`memory` runs jobs by the real operators, gates, codecs and writers, over a Kafka that is lists. The other
modules are its public face.
"""
