"""What commands read of a cluster: its log, its Kafka, its ZooKeeper and its storage."""
