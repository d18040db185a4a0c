// Two countries with one good and complete markets, whose productivities spill over (after Backus,
// Kehoe and Kydland 1992, without time to build and leisure).

@#define countries = ["home", "abroad"]

var lam
@#for i in countries
  c_@{i} k_@{i} a_@{i}
@#endfor
;

varexo
@#for i in countries
  e_@{i}
@#endfor
;

parameters alpha beta delta gamma rho nu;
alpha = 0.36; beta = 0.99; delta = 0.025; gamma = 2; rho = 0.906; nu = 0.088;

model;
  0
@#for i in countries
    + exp(a_@{i}) * k_@{i}(-1)^alpha + (1 - delta) * k_@{i}(-1) - c_@{i} - k_@{i}
@#endfor
  ;
@#for (i, j) in [("home", "abroad"), ("abroad", "home")]
  [name = 'sharing of risk, @{i}'] lam = c_@{i}^(-gamma);
  [name = 'Euler, @{i}']
  lam = beta * lam(+1) * (alpha * exp(a_@{i}(+1)) * k_@{i}^(alpha - 1) + 1 - delta);
  [name = 'productivity, @{i}'] a_@{i} = rho * a_@{i}(-1) + nu * a_@{j}(-1) + e_@{i};
@#endfor
end;

steady_state_model;
@#for i in countries
  a_@{i} = 0;
  k_@{i} = (alpha / (1 / beta - 1 + delta))^(1 / (1 - alpha));
  c_@{i} = k_@{i}^alpha - delta * k_@{i};
@#endfor
  lam = c_home^(-gamma);
end;

shocks;
@#for i in countries
  var e_@{i}; stderr 0.00852;
@#endfor
  corr e_home, e_abroad = 0.258;
end;
