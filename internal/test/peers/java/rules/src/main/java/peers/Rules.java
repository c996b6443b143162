package peers;

import com.google.protobuf.InvalidProtocolBufferException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import refloat.armada.v1.Armada.Error;
import refloat.armada.v1.Armada.Event;
import refloat.armada.v1.Armada.EventSequence;
import refloat.armada.v1.Armada.SubmitJob;
import refloat.v1.Refloat.Decision;
import refloat.v1.Refloat.NotDecided;
import refloat.v1.Refloat.Record;

/** The job that all programs do: fold the events of one message into its jobs, and decide the runs that failed in it. */
public final class Rules {
  private static final int TOTAL = 8; // retries of a job
  private static final long INITIAL_MS = 10_000, MAX_MS = 600_000, SLACK_MS = 10_000;

  private record Failure(String job, String run, boolean preempted, Error error, long time) {}

  private final Function<String, Job> load;
  private final Map<String, Job.Builder> jobs = new LinkedHashMap<>();
  private final Map<String, Failure> failures = new LinkedHashMap<>();

  /** Takes jobs from load, which returns null for those that are not known. */
  public Rules(Function<String, Job> load) {
    this.load = load;
  }

  /** Returns the jobs that the message changed. */
  public Map<String, Job.Builder> process(EventSequence message, Consumer<Record> out) {
    jobs.clear();
    failures.clear();
    for (Event e : message.getEventsList()) {
      fold(e);
    }
    for (Failure f : failures.values()) {
      out.accept(decide(message, f));
    }
    return jobs;
  }

  private Job.Builder job(String id) {
    return jobs.computeIfAbsent(id, i -> {
      Job j = load.apply(i);
      return j == null ? Job.newBuilder() : j.toBuilder();
    });
  }

  private static int find(Job.Builder job, String id) {
    for (int i = job.getRunsCount() - 1; i >= 0; i--) {
      if (job.getRuns(i).getId().equals(id)) {
        return i;
      }
    }
    return -1;
  }

  private static Run.Builder run(Job.Builder job, String id) {
    int i = find(job, id);
    return i >= 0 ? job.getRunsBuilder(i) : job.addRunsBuilder().setId(id);
  }

  private void fold(Event e) {
    switch (e.getEventCase()) {
      case SUBMIT_JOB -> submit(e.getSubmitJob());
      case CANCEL_JOB -> job(e.getCancelJob().getJobId()).setOver(true);
      case CANCELLED_JOB -> job(e.getCancelledJob().getJobId()).setOver(true);
      case JOB_SUCCEEDED -> job(e.getJobSucceeded().getJobId()).setOver(true);
      case JOB_ERRORS -> {
        if (e.getJobErrors().getErrorsList().stream().anyMatch(x -> x.getTerminal() && x.hasJobRejected())) {
          job(e.getJobErrors().getJobId()).setOver(true);
        }
      }
      case JOB_RUN_LEASED -> {
        var v = e.getJobRunLeased();
        run(job(v.getJobId()), v.getRunId()).setNode(v.getNodeId());
      }
      case JOB_RUN_ASSIGNED -> run(job(e.getJobRunAssigned().getJobId()), e.getJobRunAssigned().getRunId());
      case JOB_RUN_RUNNING -> {
        var v = e.getJobRunRunning();
        Run.Builder run = run(job(v.getJobId()), v.getRunId());
        for (var info : v.getResourceInfosList()) {
          if (info.hasPodInfo() && !run.getEnded()) {
            run.setNode(info.getPodInfo().getNodeName());
          }
        }
      }
      case JOB_RUN_SUCCEEDED -> run(job(e.getJobRunSucceeded().getJobId()), e.getJobRunSucceeded().getRunId()).setEnded(true);
      case JOB_RUN_PREEMPTED -> {
        var v = e.getJobRunPreempted();
        failed(e, v.getPreemptedJobId(), v.getPreemptedRunId(), true, Error.getDefaultInstance());
      }
      case JOB_RUN_ERRORS -> {
        var v = e.getJobRunErrors();
        for (Error x : v.getErrorsList()) {
          if (x.getTerminal()) {
            failed(e, v.getJobId(), v.getRunId(), x.hasJobRunPreemptedError(), x);
            break;
          }
        }
      }
      default -> {}
    }
  }

  private void submit(SubmitJob s) {
    Job.Builder job = job(s.getJobId());
    long grace = s.getMainObject().getPodSpec().getPodSpec().getTerminationGracePeriodSeconds();
    job.setSubmitted(true).setFailFast("true".equals(s.getObjectMeta().getAnnotationsOrDefault("armadaproject.io/failFast", "")));
    job.setGraceMs(1000 * Math.max(1, Math.min(300, grace)));
  }

  /** A run ends once; an error and a preemption in one message are one failure. */
  private void failed(Event e, String job, String run, boolean preempted, Error error) {
    Run.Builder r = run(job(job), run);
    Failure before = failures.get(run);
    if (before != null) {
      Error known = before.error.getTerminal() ? before.error : error;
      failures.put(run, new Failure(job, run, before.preempted || preempted, known, before.time));
    } else if (!r.getEnded()) {
      r.setEnded(true);
      long time = 1_000_000_000L * e.getCreated().getSeconds() + e.getCreated().getNanos();
      failures.put(run, new Failure(job, run, preempted, error, time));
    }
  }

  private Record decide(EventSequence message, Failure f) {
    Job.Builder job = job(f.job);
    int index = find(job, f.run), last = job.getRunsCount() - 1;
    if (index < last || job.getOver() || !job.getSubmitted()) {
      int reason = index < last ? 1 : job.getOver() ? 3 : 4;
      return Record.newBuilder().setNotDecided(NotDecided.newBuilder().setQueue(message.getQueue()).setJobSet(message.getJobSetName())
          .setJobId(f.job).setRunId(f.run).setReason(reason).setTime(f.time)).build();
    }
    Decision.Builder d = Decision.newBuilder().setQueue(message.getQueue()).setJobSet(message.getJobSetName())
        .setJobId(f.job).setRunId(f.run).setRunIndex(index).setPolicy("peers").setTime(f.time);
    if (!job.getFailFast() && retry(job, f, d)) {
      return Record.newBuilder().setJobRequeued(d.setRetryAfter(f.time + 1_000_000 * d.getDelayMs())).build();
    }
    job.setOver(true);
    return Record.newBuilder().setJobFailed(d).build();
  }

  /** The three rules. */
  private static boolean retry(Job.Builder job, Failure f, Decision.Builder d) {
    if (f.preempted) {
      d.setRule("preempted").setDelayMs(job.getGraceMs() + SLACK_MS);
      return true;
    }
    if (f.error.hasLeaseExpired() || f.error.hasPodLeaseReturned()) {
      return granted(job, f, d.setRule("lost"), 3, f.error.hasLeaseExpired() ? job.getGraceMs() + SLACK_MS : 0);
    }
    for (var c : f.error.getPodError().getContainerErrorsList()) {
      if (c.getExitCode() != 0) {
        boolean crashed = c.getExitCode() == 1 || c.getExitCode() == 137 || c.getExitCode() == 139;
        return crashed && granted(job, f, d.setRule("crashed").setContainer(c.getObjectMeta().getName()), 2, 0);
      }
    }
    return false;
  }

  private static boolean granted(Job.Builder job, Failure f, Decision.Builder d, int limit, long least) {
    int used = job.getUsedOrDefault(d.getRule(), 0), total = 0;
    for (int n : job.getUsedMap().values()) {
      total += n;
    }
    if (used >= limit || total >= TOTAL) {
      return false;
    }
    String node = f.error.getPodError().getNodeName();
    if (node.isEmpty()) {
      node = job.getRuns(job.getRunsCount() - 1).getNode();
    }
    if (!node.isEmpty()) {
      d.addAvoidNodes(node);
    }
    job.putUsed(d.getRule(), used + 1);
    d.setRuleUsed(used + 1).setRuleLimit(limit).setGlobalUsed(total + 1).setGlobalLimit(TOTAL);
    d.setDelayMs(Math.max(least, Math.min(INITIAL_MS << used, MAX_MS)));
    return true;
  }

  /** Reads what the state or a topic holds. */
  public static Job read(byte[] bytes) {
    try {
      return bytes == null ? null : Job.parseFrom(bytes);
    } catch (InvalidProtocolBufferException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Reads a message of events. */
  public static EventSequence message(byte[] bytes) {
    try {
      return EventSequence.parseFrom(bytes);
    } catch (InvalidProtocolBufferException e) {
      throw new IllegalStateException(e);
    }
  }
}
