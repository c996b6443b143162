package peers;

import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Streams BROKERS DIRECTORY: the rules as a Kafka Streams program, exactly once, with its state in RocksDB. */
public final class Streams {
  public static void main(String[] args) {
    Topology t = new Topology();
    t.addSource("events", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), "events");
    t.addProcessor("decide", Decide::new, "events");
    t.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("jobs"), Serdes.String(), Serdes.ByteArray())
        .withCachingEnabled(), "decide");
    t.addSink("decisions", "decisions", Serdes.String().serializer(), Serdes.ByteArray().serializer(), "decide");

    Properties p = new Properties();
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, "peers");
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    p.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 3); // one a partition
    p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 96 << 20);
    p.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    // A restarted member takes its place at once, instead of after the session of the killed one.
    p.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "peers");
    p.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
    KafkaStreams streams = new KafkaStreams(t, p);
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }

  private static final class Decide implements Processor<String, byte[], String, byte[]> {
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> jobs;
    private Rules rules;

    @Override
    public void init(ProcessorContext<String, byte[]> c) {
      context = c;
      jobs = c.getStateStore("jobs");
      rules = new Rules(id -> Rules.read(jobs.get(id)));
    }

    @Override
    public void process(org.apache.kafka.streams.processor.api.Record<String, byte[]> message) {
      rules.process(Rules.message(message.value()), r -> context.forward(message.withValue(r.toByteArray())))
          .forEach((id, job) -> jobs.put(id, job.build().toByteArray()));
    }
  }
}
