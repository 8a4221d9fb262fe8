import java.io.File;
import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;

/**
 * Prints the status history of all jobs of a cluster, from its log alone.
 *
 * <pre>
 * tailrace log export log.avro
 * java -cp ... JobStatuses.java log.avro
 * </pre>
 *
 * A line has the offset, the time, the job and its new status. With several files, their names stand between the lines.
 * An exported log has its schemas, so this program needs nothing else of tailrace. See docs/history.md.
 */
public class JobStatuses {

  public static void main(String[] args) throws IOException {
    if (args.length == 0) {
      System.err.println("usage: JobStatuses LOG.avro...");
      System.exit(2);
    }
    for (String file : args) {
      if (args.length > 1) {
        System.out.println("==> " + file + " <==");
      }
      print(new File(file));
    }
  }

  private static void print(File file) throws IOException {
    Map<String, Long> epochs = new HashMap<>();
    Map<String, String> statuses = new HashMap<>();
    try (var log = new DataFileReader<GenericRecord>(file, new GenericDatumReader<>())) {
      for (GenericRecord entry : log) {
        // A record of the log that is no event has none here.
        if (!(entry.get("event") instanceof GenericRecord event) || isFenced(event, epochs)) {
          continue;
        }
        String job = event.getSchema().getField("job_id") == null ? "" : event.get("job_id").toString();
        String status =
            switch (event.getSchema().getFullName()) {
              case "tailrace.client.JobAccepted" -> "INITIALIZING";
              case "tailrace.client.JobStatusChanged" ->
                  event.get("old_status").toString().equals(statuses.get(job)) ? event.get("status").toString() : null;
              default -> null;
            };
        if (status != null) {
          statuses.put(job, status);
          System.out.printf("%s %s %s %s%n", entry.get("offset"), time(event), job, status);
        }
      }
    }
  }

  /** LeaderElected: "Readers ignore what the role says under an older epoch." */
  private static boolean isFenced(GenericRecord event, Map<String, Long> epochs) {
    GenericRecord header = (GenericRecord) event.get("header");
    String sender = header.get("sender").toString();
    // The leader of the Dispatcher leads all JobMasters.
    String role = sender.startsWith("job_master/") ? "dispatcher" : sender;
    long epoch = (Long) header.get("sender_epoch");
    if (event.getSchema().getName().equals("LeaderElected")) {
      epochs.merge(role, epoch, Math::max);
    }
    return epoch < epochs.getOrDefault(role, 0L);
  }

  private static Instant time(GenericRecord event) {
    return Instant.EPOCH.plus((Long) ((GenericRecord) event.get("header")).get("time"), ChronoUnit.MICROS);
  }
}
