; A loop of multiply-adds, as a template: `fma_loop_ir` in loops.py fills in the kind of vector, and repeats for each
; chain the lines that have the chain's number. Its arguments are the addresses of numbers and sums, rounds and steps.

declare $vector $fma($vector, $vector, $vector)
define i64 @work(ptr %arguments) {
entry:
  %numbers_at = getelementptr i64, ptr %arguments, i64 0
  %numbers = load ptr, ptr %numbers_at
  %sums_at = getelementptr i64, ptr %arguments, i64 1
  %sums = load ptr, ptr %sums_at
  %rounds_at = getelementptr i64, ptr %arguments, i64 2
  %rounds = load i64, ptr %rounds_at
  %steps_at = getelementptr i64, ptr %arguments, i64 3
  %steps = load i64, ptr %steps_at
  %k = load $vector, ptr %numbers, align $vector_bytes
  %xat$chain = getelementptr i8, ptr %numbers, i64 $number_offset
  %sat$chain = getelementptr i8, ptr %sums, i64 $sum_offset
  br label %round
round:
  %r = phi i64 [0, %entry], [%rnext, %added]
  %x$chain = load $vector, ptr %xat$chain, align $vector_bytes
  br label %loop
loop:
  %i = phi i64 [0, %round], [%next, %loop]
  %y$chain = phi $vector [%x$chain, %round], [%z$chain, %loop]
  %z$chain = call $vector $fma($vector %y$chain, $vector %k, $vector %y$chain)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %added
added:
  %sum$chain = load $vector, ptr %sat$chain, align $vector_bytes
  %new$chain = fadd $vector %sum$chain, %z$chain
  store $vector %new$chain, ptr %sat$chain, align $vector_bytes
  %rnext = add i64 %r, 1
  %again = icmp ult i64 %rnext, %rounds
  br i1 %again, label %round, label %out
out:
  ret i64 0
}
