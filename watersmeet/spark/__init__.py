"""The same join on Spark Structured Streaming. Needs the extra `spark`."""

try:
    import pyspark  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("watersmeet.spark needs PySpark: pip install 'watersmeet[spark]'") from error

from watersmeet.spark.join import explain_join, stream_join
from watersmeet.spark.parquet import ParquetFiles, parquet_files

__all__ = ["ParquetFiles", "explain_join", "parquet_files", "stream_join"]
