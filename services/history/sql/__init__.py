"""The log as tables, for Spark SQL: a view for each type of event, over a live cluster or an exported file.

    from tailrace.services.history.sql.reader import open_log
    log = open_log(spark, Path("history.parquet"))
    log.create_views()
    spark.sql("SELECT job_id, status FROM client_JobFinished")

tables.py says what there is, scan.py reads it from any log, reader.py gives it to Spark. This is the one part of the
services that imports PySpark, and nothing imports it before somebody asks in SQL.
"""
