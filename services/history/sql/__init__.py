"""The log as tables, for Spark SQL: a view for each type of event, over a live cluster or an exported file.

    from tailrace.services.history.sql.reader import open_log
    log = open_log(spark, Path("history.parquet"))
    log.create_views()
    spark.sql("SELECT job_id, status FROM client_JobFinished")

tables.py defines the tables, scan.py reads their rows from any log, reader.py makes them views of Spark. Only this
package of the services imports PySpark, and it is imported only for SQL.
"""
