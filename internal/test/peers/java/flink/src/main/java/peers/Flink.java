package peers;

import static org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import refloat.armada.v1.Armada.Event;
import refloat.armada.v1.Armada.EventSequence;

/** Flink BROKERS DIRECTORY: the rules as a Flink job in a local cluster, exactly once, with its state in RocksDB. */
public final class Flink {
  public static void main(String[] args) throws Exception {
    Path dir = Path.of(args[1]);
    Configuration c = new Configuration();
    c.setString("state.backend.type", "rocksdb");
    c.setString("state.backend.rocksdb.localdir", dir.resolve("rocksdb").toString());
    c.setString("taskmanager.memory.managed.size", "256m"); // RocksDB's
    c.setString("execution.checkpointing.dir", Files.createDirectories(dir.resolve("checkpoints")).toUri().toString());
    c.setString("execution.checkpointing.interval", "200ms"); // decisions can be read after the next one
    c.setString("execution.checkpointing.incremental", "true");
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    c.setString("pipeline.object-reuse", "true");
    String last = last(dir.resolve("checkpoints"));
    if (last != null) {
      c.setString("execution.state-recovery.path", last);
    }
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, c);

    KafkaSource<byte[]> events = KafkaSource.<byte[]>builder().setBootstrapServers(args[0]).setTopics("events").setGroupId("peers")
        .setStartingOffsets(OffsetsInitializer.earliest()).setValueOnlyDeserializer(new Bytes()).build();
    KafkaSink<byte[]> decisions = KafkaSink.<byte[]>builder().setBootstrapServers(args[0])
        .setRecordSerializer(KafkaRecordSerializationSchema.<byte[]>builder().setTopic("decisions")
            .setValueSerializationSchema(new Bytes()).build())
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix("peers")
        .setProperty("transaction.timeout.ms", "60000").setProperty("compression.type", "lz4").build();
    env.fromSource(events, WatermarkStrategy.noWatermarks(), "events")
        .flatMap(Flink::byJob).returns(Types.TUPLE(Types.STRING, BYTE_PRIMITIVE_ARRAY_TYPE_INFO))
        .keyBy(t -> t.f0, Types.STRING)
        .process(new Decide())
        .sinkTo(decisions);
    env.execute();
  }

  /** The newest checkpoint, or null; each start writes into a directory of its own. */
  private static String last(Path checkpoints) throws IOException {
    try (Stream<Path> files = Files.find(checkpoints, 3, (p, a) -> p.endsWith("_metadata"))) {
      return files.max(Comparator.comparing(p -> p.toFile().lastModified())).map(p -> p.getParent().toUri().toString()).orElse(null);
    }
  }

  /** Splits a message into one for each job, since state is kept by key. */
  private static void byJob(byte[] message, Collector<Tuple2<String, byte[]>> out) {
    EventSequence all = Rules.message(message);
    Map<String, EventSequence.Builder> parts = new LinkedHashMap<>();
    for (Event e : all.getEventsList()) {
      String id = job(e);
      if (!id.isEmpty()) {
        parts.computeIfAbsent(id, i -> EventSequence.newBuilder().setQueue(all.getQueue()).setJobSetName(all.getJobSetName())).addEvents(e);
      }
    }
    parts.forEach((id, part) -> out.collect(Tuple2.of(id, part.build().toByteArray())));
  }

  private static String job(Event e) {
    return switch (e.getEventCase()) {
      case SUBMIT_JOB -> e.getSubmitJob().getJobId();
      case CANCEL_JOB -> e.getCancelJob().getJobId();
      case CANCELLED_JOB -> e.getCancelledJob().getJobId();
      case JOB_SUCCEEDED -> e.getJobSucceeded().getJobId();
      case JOB_ERRORS -> e.getJobErrors().getJobId();
      case JOB_RUN_LEASED -> e.getJobRunLeased().getJobId();
      case JOB_RUN_ASSIGNED -> e.getJobRunAssigned().getJobId();
      case JOB_RUN_RUNNING -> e.getJobRunRunning().getJobId();
      case JOB_RUN_SUCCEEDED -> e.getJobRunSucceeded().getJobId();
      case JOB_RUN_PREEMPTED -> e.getJobRunPreempted().getPreemptedJobId();
      case JOB_RUN_ERRORS -> e.getJobRunErrors().getJobId();
      default -> "";
    };
  }

  private static final class Bytes extends AbstractDeserializationSchema<byte[]> implements SerializationSchema<byte[]> {
    @Override
    public byte[] deserialize(byte[] message) {
      return message;
    }

    @Override
    public byte[] serialize(byte[] record) {
      return record;
    }
  }

  private static final class Decide extends KeyedProcessFunction<String, Tuple2<String, byte[]>, byte[]> {
    private transient ValueState<byte[]> state;
    private transient Rules rules;

    @Override
    public void open(OpenContext c) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("jobs", BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
      rules = new Rules(id -> Rules.read(value()));
    }

    private byte[] value() {
      try {
        return state.value();
      } catch (IOException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    public void processElement(Tuple2<String, byte[]> in, Context c, Collector<byte[]> out) throws Exception {
      for (Job.Builder job : rules.process(Rules.message(in.f1), r -> out.collect(r.toByteArray())).values()) {
        state.update(job.build().toByteArray());
      }
    }
  }
}
