; A loop over arrays, as a template: `access_loop_ir` in loops.py fills in what depends on the access pattern and on the
; width of vectors. Its arguments are the addresses of a, b and c, bytes, and passes over these.

define i64 @work(ptr %arguments) {
entry:
  %a_at = getelementptr i64, ptr %arguments, i64 0
  %a = load ptr, ptr %a_at
  %b_at = getelementptr i64, ptr %arguments, i64 1
  %b = load ptr, ptr %b_at
  %c_at = getelementptr i64, ptr %arguments, i64 2
  %c = load ptr, ptr %c_at
  %bytes_at = getelementptr i64, ptr %arguments, i64 3
  %bytes = load i64, ptr %bytes_at
  %passes_at = getelementptr i64, ptr %arguments, i64 4
  %passes = load i64, ptr %passes_at
  %total = mul i64 %bytes, %passes
  %nothing = icmp eq i64 %total, 0
  br i1 %nothing, label %out, label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %done = phi i64 [0, %entry], [%sofar, %loop]
$carried_sums
$body
  %after = add i64 %i, $iteration_bytes
  %wrapped = icmp eq i64 %after, %bytes
  %next = select i1 %wrapped, i64 0, i64 %after
  %sofar = add i64 %done, $iteration_bytes
  %more = icmp ult i64 %sofar, %total
  br i1 %more, label %loop, label %end
end:
$end
out:
  ret i64 0
}
!0 = !{i32 1}
