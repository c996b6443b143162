// Package trace reads traces of real clusters as inputs of the simulator, in the format of Alibaba's
// cluster-trace-gpu-v2023 (https://github.com/alibaba/clusterdata): one CSV file of pods, one of nodes.
//
// Columns of pods that are read: name, cpu_milli, memory_mib, num_gpu, gpu_milli, qos, creation_time,
// deletion_time, scheduled_time (seconds; the last may be empty: the pod never ran). Columns of nodes: sn,
// cpu_milli, memory_mib, gpu. Others are ignored, and the order of columns is free.
//
// Errors name the file, the line and the column. Numbers are integers, so NaN and the like are errors.
package trace
