import java.io.File;
import java.io.FileReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.SchemaParser;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteBufferSerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Submits WindowWordCount to a tailrace cluster, from Java: one Avro record to one Kafka topic, and the answer from
 * another.
 *
 * <pre>java -cp ... SubmitWordCount.java BOOTSTRAP CLUSTER TEXT_HOST TEXT_PORT [SCHEMAS [PROPERTIES [TENANT]]]</pre>
 *
 * SCHEMAS is tailrace's folder of .avsc files; "schemas" by default. PROPERTIES is a file with further properties of
 * Kafka's client, such as those of TLS and SASL; the principal needs Write on CLUSTER.submissions and Read on
 * CLUSTER.answers. With a TENANT these are CLUSTER.submissions.TENANT and CLUSTER.answers.TENANT. Prints the id of the
 * job when the cluster has accepted it. See docs/submit-from-anywhere.md.
 */
public class SubmitWordCount {

  public static void main(String[] args) throws Exception {
    if (args.length < 4) {
      System.err.println(
          "usage: SubmitWordCount BOOTSTRAP CLUSTER TEXT_HOST TEXT_PORT [SCHEMAS [PROPERTIES [TENANT]]]");
      System.exit(2);
    }
    String bootstrap = args[0], cluster = args[1], host = args[2], port = args[3];
    String ofTenant = args.length > 6 ? "." + args[6] : "";
    Schema schema = submitJob(new File(args.length > 4 ? args[4] : "schemas"));
    byte[] random = new byte[16];
    new SecureRandom().nextBytes(random);
    String jobId = "wordcount-" + HexFormat.of().formatHex(random);
    // A sender of its own: the key of the answers to this submission.
    String sender = "client/java-example-" + HexFormat.of().formatHex(random);

    GenericRecord header =
        new GenericRecordBuilder(schema.getField("header").schema())
            .set("event_id", UUID.randomUUID().toString())
            .set("time", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()))
            .set("sender", sender)
            .set("sender_epoch", 0)
            .set("recipient", "dispatcher")
            .build();
    Schema entryPoint = nonNull(schema.getField("entry_point").schema());
    GenericRecord event =
        new GenericRecordBuilder(schema)
            .set("header", header)
            .set("job_id", jobId)
            .set(
                "entry_point",
                new GenericRecordBuilder(entryPoint)
                    .set("target", "tailrace.pipelines.examples.window_word_count:main")
                    .set("arguments", List.of("--hostname", host, "--port", port))
                    .build())
            .build();

    // Avro's single-object encoding: C3 01, the schema's fingerprint, the record.
    ByteBuffer value = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema).encode(event);
    Properties settings = new Properties();
    settings.put("max.block.ms", 10_000);
    if (args.length > 5) {
      try (var file = new FileReader(args[5])) {
        settings.load(file);
      }
    }
    settings.put("bootstrap.servers", bootstrap);
    var answers = new TopicPartition(cluster + ".answers" + ofTenant, 0);
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new ByteBufferSerializer());
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(answers));
      consumer.seekToEnd(List.of(answers));
      // The end is looked up now, and not after the submission.
      consumer.position(answers);
      producer.send(new ProducerRecord<>(cluster + ".submissions" + ofTenant, jobId, value)).get();
      String answer = awaitAnswer(consumer, sender);
      if (!answer.equals("tailrace.client.JobAccepted")) {
        System.err.println("job " + jobId + ": " + answer);
        System.exit(1);
      }
    }
    System.out.println(jobId);
  }

  /**
   * Returns the type of the first answer to the sender. Its value is the event, in the encoding of the submission:
   * JobRejected has a reason.
   */
  private static String awaitAnswer(KafkaConsumer<String, byte[]> consumer, String sender) {
    Instant until = Instant.now().plusSeconds(120);
    while (Instant.now().isBefore(until)) {
      for (var record : consumer.poll(Duration.ofSeconds(1))) {
        if (sender.equals(record.key())) {
          return new String(record.headers().lastHeader("type").value(), StandardCharsets.UTF_8);
        }
      }
    }
    return "no answer: the next jobmanager that starts handles the job";
  }

  /** The schema of SubmitJob: its own file and those of the types it names. */
  private static Schema submitJob(File schemas) throws Exception {
    SchemaParser parser = new SchemaParser();
    for (File type : new File(schemas, "types").listFiles((folder, name) -> name.endsWith(".avsc"))) {
      parser.parse(type);
    }
    return parser.parse(new File(schemas, "dispatcher/SubmitJob.avsc")).mainSchema();
  }

  private static Schema nonNull(Schema union) {
    return union.getTypes().stream().filter(type -> type.getType() != Schema.Type.NULL).findFirst().get();
  }
}
