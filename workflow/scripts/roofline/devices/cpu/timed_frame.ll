; The frame in which several threads run a loop: they begin together, and each stores when it began and ended. loops.py
; puts the loop's @work behind it.
;
; The numbers of words in a thread's row are those of loops.py: 1 END_WORD, 2 RESULT, 3 CHAIN_NS, 4 THREADS,
; 5 CHAIN_ROUNDS, 6 UNUSED, 7 ARGUMENTS.

declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

; Nanoseconds of the clock CLOCK_MONOTONIC, whose number is 1.
define i64 @now() {
  %time = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %rest
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}

; The clock chain: in each round CHAIN_OPS (64) dependent additions and exclusive ors, one clock each.
define i64 @chain(i64 %rounds, i64 %y, i64 %z) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x0 = phi i64 [%y, %entry], [%x64, %loop]
  %x1 = add i64 %x0, %y
  %x2 = xor i64 %x1, %z
  %x3 = add i64 %x2, %y
  %x4 = xor i64 %x3, %z
  %x5 = add i64 %x4, %y
  %x6 = xor i64 %x5, %z
  %x7 = add i64 %x6, %y
  %x8 = xor i64 %x7, %z
  %x9 = add i64 %x8, %y
  %x10 = xor i64 %x9, %z
  %x11 = add i64 %x10, %y
  %x12 = xor i64 %x11, %z
  %x13 = add i64 %x12, %y
  %x14 = xor i64 %x13, %z
  %x15 = add i64 %x14, %y
  %x16 = xor i64 %x15, %z
  %x17 = add i64 %x16, %y
  %x18 = xor i64 %x17, %z
  %x19 = add i64 %x18, %y
  %x20 = xor i64 %x19, %z
  %x21 = add i64 %x20, %y
  %x22 = xor i64 %x21, %z
  %x23 = add i64 %x22, %y
  %x24 = xor i64 %x23, %z
  %x25 = add i64 %x24, %y
  %x26 = xor i64 %x25, %z
  %x27 = add i64 %x26, %y
  %x28 = xor i64 %x27, %z
  %x29 = add i64 %x28, %y
  %x30 = xor i64 %x29, %z
  %x31 = add i64 %x30, %y
  %x32 = xor i64 %x31, %z
  %x33 = add i64 %x32, %y
  %x34 = xor i64 %x33, %z
  %x35 = add i64 %x34, %y
  %x36 = xor i64 %x35, %z
  %x37 = add i64 %x36, %y
  %x38 = xor i64 %x37, %z
  %x39 = add i64 %x38, %y
  %x40 = xor i64 %x39, %z
  %x41 = add i64 %x40, %y
  %x42 = xor i64 %x41, %z
  %x43 = add i64 %x42, %y
  %x44 = xor i64 %x43, %z
  %x45 = add i64 %x44, %y
  %x46 = xor i64 %x45, %z
  %x47 = add i64 %x46, %y
  %x48 = xor i64 %x47, %z
  %x49 = add i64 %x48, %y
  %x50 = xor i64 %x49, %z
  %x51 = add i64 %x50, %y
  %x52 = xor i64 %x51, %z
  %x53 = add i64 %x52, %y
  %x54 = xor i64 %x53, %z
  %x55 = add i64 %x54, %y
  %x56 = xor i64 %x55, %z
  %x57 = add i64 %x56, %y
  %x58 = xor i64 %x57, %z
  %x59 = add i64 %x58, %y
  %x60 = xor i64 %x59, %z
  %x61 = add i64 %x60, %y
  %x62 = xor i64 %x61, %z
  %x63 = add i64 %x62, %y
  %x64 = xor i64 %x63, %z
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
  ret i64 %x64
}

; `arrived` counts the threads that are here. The first word of a thread's row takes the time of its begin.
define void @run(ptr %arrived, ptr %row) {
entry:
  %threads_at = getelementptr i64, ptr %row, i64 4
  %threads = load i64, ptr %threads_at
  %before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %wait
wait:
  %count_now = load atomic i64, ptr %arrived seq_cst, align 8
  %all = icmp uge i64 %count_now, %threads
  br i1 %all, label %go, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
go:
  %begin = call i64 @now()
  store i64 %begin, ptr %row
  %arguments = getelementptr i64, ptr %row, i64 7
  %result = call i64 @work(ptr %arguments)
  fence seq_cst
  %end = call i64 @now()
  %end_at = getelementptr i64, ptr %row, i64 1
  store i64 %end, ptr %end_at
  %result_at = getelementptr i64, ptr %row, i64 2
  store i64 %result, ptr %result_at
  %rounds_at = getelementptr i64, ptr %row, i64 5
  %rounds = load i64, ptr %rounds_at
  %counted = icmp ugt i64 %rounds, 0
  br i1 %counted, label %count, label %done
count:
  %count_begin = call i64 @now()
  %last = call i64 @chain(i64 %rounds, i64 %begin, i64 %end)
  %count_end = call i64 @now()
  %chain_ns = sub i64 %count_end, %count_begin
  %chain_at = getelementptr i64, ptr %row, i64 3
  store i64 %chain_ns, ptr %chain_at
  %unused_at = getelementptr i64, ptr %row, i64 6
  store i64 %last, ptr %unused_at
  br label %done
done:
  ret void
}
