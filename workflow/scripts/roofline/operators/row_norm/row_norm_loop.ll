; The loop over rows, as a template: `rows_loop_ir` in row_norm_loop.py fills in the kind of vector and the three passes
; over a row, which leave sums in four vectors. Its arguments are the addresses of x and y, then rows and columns.

declare float @llvm.vector.reduce.fadd.v${lanes}f32(float, $vector)
declare $vector @llvm.fmuladd.v${lanes}f32($vector, $vector, $vector)
declare float @llvm.sqrt.f32(float)
define i64 @work(ptr %arguments) {
entry:
  %y_at = getelementptr i64, ptr %arguments, i64 1
  %rows_at = getelementptr i64, ptr %arguments, i64 2
  %columns_at = getelementptr i64, ptr %arguments, i64 3
  %x0 = load ptr, ptr %arguments
  %y0 = load ptr, ptr %y_at
  %rows = load i64, ptr %rows_at
  %columns = load i64, ptr %columns_at
  %count = sitofp i64 %columns to float
  %row_bytes = mul i64 %columns, 4
  br label %row
row:
  %r = phi i64 [0, %entry], [%r_next, %result_done]
  %x = phi ptr [%x0, %entry], [%x_next, %result_done]
  %y = phi ptr [%y0, %entry], [%y_next, %result_done]
  %first = load float, ptr %x, align 4
  %first_one = insertelement $vector poison, float %first, i64 0
  %first_v = shufflevector $vector %first_one, $vector poison, <$lanes x i32> zeroinitializer
$mean_pass
  %mean_a = fadd $vector %mean_new0, %mean_new1
  %mean_b = fadd $vector %mean_new2, %mean_new3
  %mean_c = fadd $vector %mean_a, %mean_b
  %mean_total = call reassoc float @llvm.vector.reduce.fadd.v${lanes}f32(float -0.0, $vector %mean_c)
  %mean = fdiv float %mean_total, %count
  %mean_one = insertelement $vector poison, float %mean, i64 0
  %mean_v = shufflevector $vector %mean_one, $vector poison, <$lanes x i32> zeroinitializer
$square_pass
  %square_a = fadd $vector %square_new0, %square_new1
  %square_b = fadd $vector %square_new2, %square_new3
  %square_c = fadd $vector %square_a, %square_b
  %square_total = call reassoc float @llvm.vector.reduce.fadd.v${lanes}f32(float -0.0, $vector %square_c)
  %variance = fdiv float %square_total, %count
  %deviation = call float @llvm.sqrt.f32(float %variance)
  %inverse = fdiv float 1.0, %deviation
  %constant = fcmp oeq float %variance, 0.0
  %scale = select i1 %constant, float 0.0, float %inverse
  %scale_one = insertelement $vector poison, float %scale, i64 0
  %scale_v = shufflevector $vector %scale_one, $vector poison, <$lanes x i32> zeroinitializer
$result_pass
  %r_next = add i64 %r, 1
  %x_next = getelementptr i8, ptr %x, i64 %row_bytes
  %y_next = getelementptr i8, ptr %y, i64 %row_bytes
  %more_rows = icmp slt i64 %r_next, %rows
  br i1 %more_rows, label %row, label %out
out:
  ret i64 0
}
